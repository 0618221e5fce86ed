-- Versions of each program, by kernel: tags of different kernels are not comparable.
WITH recorded AS (
  SELECT prog_key, name, prog_type, kernel_release, version_label, tag, host_id, window_start, MIN(date) AS date,
         SUM(CAST(run_cnt AS DECIMAL(20,0))) AS runs,
         SUM(CAST(run_time_ns AS DECIMAL(20,0))) AS cpu_ns,
         MAX(CAST(observed_ns AS DECIMAL(20,0))) AS observed_ns,
         MAX(CAST(observed_ns AS DECIMAL(20,0)) * CAST(cpu_count AS DECIMAL(10,0))) AS capacity_ns
  FROM run_stats
  WHERE counts_others = FALSE AND date >= '${since}' AND date <= '${until}'
  GROUP BY prog_key, name, prog_type, kernel_release, version_label, tag, host_id, window_start),
summed AS (
  SELECT prog_key, name, prog_type, kernel_release, version_label, tag,
         MIN(date) AS first_date, MAX(date) AS last_date, COUNT(DISTINCT host_id) AS hosts, COUNT(*) AS recordings,
         SUM(runs) AS runs, SUM(cpu_ns) AS cpu_ns,
         CASE WHEN COUNT(observed_ns) = COUNT(*) THEN SUM(observed_ns) END AS observed_ns,
         CASE WHEN COUNT(capacity_ns) = COUNT(*) THEN SUM(capacity_ns) END AS capacity_ns
  FROM recorded
  GROUP BY prog_key, name, prog_type, kernel_release, version_label, tag)
SELECT name, prog_type, prog_key, kernel_release, version_label, tag, first_date, last_date, hosts, recordings, runs, cpu_ns,
       CASE WHEN runs > 0 THEN CAST(cpu_ns AS DOUBLE) / CAST(runs AS DOUBLE) END AS ns_per_run,
       CASE WHEN observed_ns > 0 THEN CAST(runs AS DOUBLE) * 1e9 / CAST(observed_ns AS DOUBLE) END AS runs_per_s_of_host,
       CASE WHEN capacity_ns > 0 THEN CAST(cpu_ns AS DOUBLE) * 1e2 / CAST(capacity_ns AS DOUBLE) END AS capacity_percent
FROM summed
ORDER BY name, prog_type NULLS LAST, prog_key, kernel_release NULLS LAST, first_date, version_label NULLS LAST, tag NULLS LAST
LIMIT ${limit}
