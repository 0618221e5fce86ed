//! Spark cluster on this machine: a master and two workers, which share a secret and listen on the loopback interface only.

use crate::support::repository;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of each step, ample for a busy machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// Options for a faster start of Java, without effect on results.
const JAVA_OPTIONS: &str = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC";

pub(super) fn wait_until(what: &str, is_so: &dyn Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the processes with a working directory at or below `directory`.
pub(super) fn processes_in(directory: &Path) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.filter(|process| fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(directory))).collect()
}

/// Returns the directory of Spark; `None` if Spark is not installed. In CI, this is a failure.
fn spark_home() -> Option<PathBuf> {
    let home = repository().join("fleet/target/spark/home");
    assert!(home.is_dir() || std::env::var_os("CI").is_none(), "setup/fleet-spark was not run");
    home.is_dir().then_some(home)
}

/// Returns Python with Spark, and options for a fast start of Java; `None` if Spark is not installed.
pub(crate) fn python_with_spark() -> Option<Command> {
    let home = spark_home()?;
    let mut python = Command::new(home.with_file_name("environment").join("bin/python3"));
    python.env("SPARK_LOCAL_IP", "127.0.0.1");
    python.env("PYSPARK_SUBMIT_ARGS", format!("--driver-java-options '{JAVA_OPTIONS}' pyspark-shell"));
    Some(python)
}

/// Spark as installed by setup/fleet-spark, with its own configuration.
pub(super) struct Spark {
    home: PathBuf,
    configuration: tempfile::TempDir,
}

impl Spark {
    /// Finds Spark; `None` if it is not installed.
    pub(super) fn installed() -> Option<Spark> {
        let home = spark_home()?;
        let configuration = tempfile::tempdir().unwrap();
        let mut secret = [0; 16];
        File::open("/dev/urandom").unwrap().read_exact(&mut secret).unwrap();
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let settings = format!(
            "spark.authenticate true\n\
             spark.authenticate.secret {secret}\n\
             spark.master.rest.enabled false\n\
             spark.cores.max 2\n\
             spark.executor.memory 512m\n\
             spark.driver.extraJavaOptions {JAVA_OPTIONS}\n\
             spark.executor.extraJavaOptions {JAVA_OPTIONS}\n\
             # Both workers are there before the first task, and small shuffles have few tasks.\n\
             spark.scheduler.minRegisteredResourcesRatio 1.0\n\
             spark.sql.shuffle.partitions 4\n"
        );
        let file = configuration.path().join("spark-defaults.conf");
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(file).unwrap();
        std::io::Write::write_all(&mut file, settings.as_bytes()).unwrap();
        Some(Spark { home, configuration })
    }

    /// Sets the environment in which a program finds this Spark.
    pub(super) fn environment<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env("SPARK_HOME", &self.home)
            .env("SPARK_CONF_DIR", self.configuration.path())
            .env("SPARK_LOCAL_IP", "127.0.0.1")
            .env("SPARK_LOCAL_HOSTNAME", "localhost")
            .env("SPARK_DAEMON_MEMORY", "256m")
            .env("SPARK_DAEMON_JAVA_OPTS", JAVA_OPTIONS)
    }
}

/// Running cluster; its processes end when dropped.
pub(super) struct Cluster {
    pub(super) master: String,
    daemons: Vec<Child>,
    directory: tempfile::TempDir,
}

impl Cluster {
    pub(super) fn start(spark: &Spark) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let mut cluster = Cluster { master: String::new(), daemons: Vec::new(), directory };
        cluster.daemon(spark, "master", &["--port", "0"]);
        let url = |log: &str| {
            let from = log.split_once("Starting Spark master at ")?.1;
            Some(from.split_once('\n')?.0.to_owned())
        };
        wait_until("the master starts", &|| url(&cluster.log("master")).is_some());
        cluster.master = url(&cluster.log("master")).unwrap();
        let master = cluster.master.clone();
        for worker in ["worker-0", "worker-1"] {
            cluster.daemon(spark, worker, &["--cores", "1", "--memory", "600m", "--work-dir", worker, &master]);
        }
        for worker in ["worker-0", "worker-1"] {
            wait_until("a worker registers", &|| cluster.log(worker).contains("Successfully registered with master"));
        }
        cluster
    }

    /// Starts a daemon that the kernel kills at the latest when this thread ends.
    fn daemon(&mut self, spark: &Spark, name: &str, args: &[&str]) {
        let log = File::create(self.directory.path().join(format!("{name}.log"))).unwrap();
        let class = if name == "master" { "master.Master" } else { "worker.Worker" };
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(spark.home.join("bin/spark-class"));
        command.arg(format!("org.apache.spark.deploy.{class}")).args(["--host", "127.0.0.1", "--webui-port", "0"]);
        command.args(args).current_dir(self.directory.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(spark.environment(&mut command).spawn().unwrap());
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(format!("{name}.log"))).unwrap()
    }

    /// Count of finished tasks in the executor logs of each worker.
    pub(super) fn finished_tasks(&self) -> [usize; 2] {
        ["worker-0", "worker-1"].map(|worker| {
            let directories = |path: &Path| fs::read_dir(path).unwrap().flatten().map(|entry| entry.path());
            let applications = directories(&self.directory.path().join(worker));
            let executors =
                applications.filter(|path| path.is_dir()).flat_map(|path| directories(&path).collect::<Vec<_>>());
            let logs = executors.map(|path| fs::read_to_string(path.join("stderr")).unwrap_or_default());
            logs.map(|log| log.matches("Finished task").count()).sum()
        })
    }

    pub(super) fn must_listen_on_loopback_alone(&self) {
        let files = |process: &PathBuf| fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let processes = processes_in(self.directory.path());
        let links = processes.iter().flat_map(files).filter_map(|file| fs::read_link(file.path()).ok());
        let sockets: BTreeSet<String> = links
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap());
        let rows = tables.iter().flat_map(|table| table.lines().skip(1)).map(|row| row.split_whitespace().collect());
        // State 0A is a listening socket; addresses are words of four bytes in the byte order of this machine.
        let listening: Vec<Vec<&str>> =
            rows.filter(|row: &Vec<&str>| row[3] == "0A" && sockets.contains(row[9])).collect();
        assert!(listening.len() >= 6, "two ports of each of three daemons: {listening:?}");
        for row in listening {
            assert!(row[1].split(':').next().unwrap().ends_with("0100007F"), "{row:?}");
        }
    }

    /// Stops the cluster and checks that no process of it is left.
    pub(super) fn stop(self) {
        let place = self.directory.path().to_owned();
        let mut daemons = self.daemons.iter().map(Child::id);
        assert!(daemons.all(|id| processes_in(&place).contains(&Path::new("/proc").join(id.to_string()))));
        drop(self);
        wait_until("all processes end", &|| processes_in(&place).is_empty());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }
}
