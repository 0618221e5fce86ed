# A flake of this source tree: nix build 'git+https://…?dir=packaging', and `nix run` with the same URL. It builds the whole program on Linux, and
# only the reporter on other systems. CI parses this file, and evaluates it with a stand-in for nixpkgs; a build with the real nixpkgs is untested,
# and there is no flake.lock.
{
  description = "What each BPF program costs, who pays for it, and why";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      manifest = builtins.fromTOML (builtins.readFile ../Cargo.toml);
      package =
        system:
        let
          pkgs = nixpkgs.legacyPackages.${system};
          isLinux = pkgs.lib.hasSuffix "-linux" system;
        in
        pkgs.rustPlatform.buildRustPackage {
          pname = "bprec";
          version = manifest.workspace.package.version;
          src = ./..;
          cargoLock.lockFile = ../Cargo.lock;
          cargoBuildFlags = [ "--package" "bprec" ];
          buildNoDefaultFeatures = !isLinux;
          buildFeatures = if isLinux then [ ] else [ "tui" "zstd" ];
          nativeBuildInputs = [ pkgs.installShellFiles ] ++ (if isLinux then [ pkgs.pkg-config ] else [ ]);
          buildInputs = if isLinux then [ pkgs.elfutils pkgs.zlib ] else [ ];
          # No tests, because they record on the machine that runs them.
          doCheck = false;
          postInstall = ''
            installShellCompletion --cmd bprec \
              --bash <($out/bin/bprec completions bash) \
              --fish <($out/bin/bprec completions fish) \
              --zsh <($out/bin/bprec completions zsh)
          '';
          meta = {
            description = manifest.package.description;
            license = with pkgs.lib.licenses; [ mit asl20 ];
            mainProgram = "bprec";
          };
        };
    in
    {
      packages = builtins.listToAttrs (
        map (system: {
          name = system;
          value.default = package system;
        }) systems
      );
    };
}
