# For Homebrew: the reporter, without record, stat, top and doctor, which need Linux. `setup/package assets` fills in @VERSION@, @URL@ and @SHA256@.
# CI loads this file in ruby with a stand-in for Homebrew; an installation by brew is untested.
class Bprec < Formula
  desc "Reports what each BPF program costs, from recordings of Linux machines"
  homepage "@URL@"
  url "@URL@/releases/download/v@VERSION@/bprec-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build

  def install
    system "cargo", "install", "--no-default-features", "--features", "tui,zstd", *std_cargo_args
    generate_completions_from_executable(bin/"bprec", "completions")
    pkgshare.install "fixtures/recordings/linux-7.2/ratio.data"
  end

  test do
    assert_match "TOTAL", shell_output("#{bin}/bprec report -i #{pkgshare}/ratio.data")
  end
end
