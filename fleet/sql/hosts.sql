-- Hosts by CPU time of all their programs. A host has the name of its last recording.
WITH recorded AS (
  SELECT host_id, kernel_release, window_start,
         FIRST_VALUE(MAX(host_name)) OVER (PARTITION BY host_id ORDER BY window_start DESC NULLS LAST) AS host_name,
         SUM(CAST(run_cnt AS DECIMAL(20,0))) AS runs,
         SUM(CAST(run_time_ns AS DECIMAL(20,0))) AS cpu_ns,
         MAX(CAST(observed_ns AS DECIMAL(20,0))) AS observed_ns,
         MAX(CAST(observed_ns AS DECIMAL(20,0)) * CAST(cpu_count AS DECIMAL(10,0))) AS capacity_ns
  FROM run_stats
  WHERE counts_others = FALSE AND date >= '${since}' AND date <= '${until}'
  GROUP BY host_id, kernel_release, window_start),
summed AS (
  SELECT host_id, MAX(host_name) AS host_name, kernel_release, COUNT(*) AS recordings, SUM(runs) AS runs, SUM(cpu_ns) AS cpu_ns,
         CASE WHEN COUNT(observed_ns) = COUNT(*) THEN SUM(observed_ns) END AS observed_ns,
         CASE WHEN COUNT(capacity_ns) = COUNT(*) THEN SUM(capacity_ns) END AS capacity_ns
  FROM recorded
  GROUP BY host_id, kernel_release)
SELECT host_id, host_name, kernel_release, recordings, runs, cpu_ns,
       CASE WHEN runs > 0 THEN CAST(cpu_ns AS DOUBLE) / CAST(runs AS DOUBLE) END AS ns_per_run,
       CASE WHEN observed_ns > 0 THEN CAST(runs AS DOUBLE) * 1e9 / CAST(observed_ns AS DOUBLE) END AS runs_per_s_of_host,
       CASE WHEN capacity_ns > 0 THEN CAST(cpu_ns AS DOUBLE) * 1e2 / CAST(capacity_ns AS DOUBLE) END AS capacity_percent
FROM summed
ORDER BY cpu_ns DESC, host_id NULLS LAST, kernel_release NULLS LAST
LIMIT ${limit}
