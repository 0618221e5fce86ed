-- Time per run of each program, day by day, as a ratio to the same hosts in the same hours of the same weekday of the base days. A base day is
-- compared with the other base days. The ratio of a day is the weighted median over hosts; the wider the margin of an estimate, the lower its weight.
WITH recorded AS (
  SELECT prog_key, name, prog_type, host_id, date, hour_of_week, window_start,
         CASE WHEN date >= '${since}' THEN 1 ELSE 0 END AS is_new,
         MIN(COALESCE(kernel_release, '')) AS kernel_low, MAX(COALESCE(kernel_release, '')) AS kernel_high,
         MIN(COALESCE(version_label, tag, '')) AS version_low, MAX(COALESCE(version_label, tag, '')) AS version_high,
         SUM(CAST(run_cnt AS DECIMAL(20,0))) AS runs,
         SUM(CAST(run_time_ns AS DECIMAL(20,0))) AS cpu_ns,
         SUM(CAST(CASE WHEN is_estimate THEN COALESCE(time_margin_ns, run_time_ns) ELSE 0 END AS DECIMAL(20,0))) AS margin_ns,
         MAX(CAST(observed_ns AS DECIMAL(20,0))) AS observed_ns,
         MAX(CAST(observed_ns AS DECIMAL(20,0)) * CAST(cpu_count AS DECIMAL(10,0))) AS capacity_ns
  FROM run_stats
  WHERE counts_others = FALSE AND is_partial = FALSE AND ${keys}
    AND ((date >= '${base_since}' AND date <= '${base_until}') OR (date >= '${since}' AND date <= '${until}'))
  GROUP BY prog_key, name, prog_type, host_id, date, hour_of_week, window_start),
matched AS (
  SELECT prog_key, name, prog_type, host_id, date, is_new, version_high, runs, cpu_ns, margin_ns, observed_ns, capacity_ns,
         SUM(CASE WHEN is_new = 0 THEN runs ELSE 0 END) OVER (PARTITION BY prog_key, name, prog_type, host_id, hour_of_week)
           - SUM(CASE WHEN is_new = 0 THEN runs ELSE 0 END) OVER (PARTITION BY prog_key, name, prog_type, host_id, hour_of_week, date)
           AS base_runs,
         SUM(CASE WHEN is_new = 0 THEN cpu_ns ELSE 0 END) OVER (PARTITION BY prog_key, name, prog_type, host_id, hour_of_week)
           - SUM(CASE WHEN is_new = 0 THEN cpu_ns ELSE 0 END) OVER (PARTITION BY prog_key, name, prog_type, host_id, hour_of_week, date)
           AS base_ns,
         MIN(kernel_low) OVER (PARTITION BY prog_key, name, prog_type, host_id) AS kernel_first,
         MAX(kernel_high) OVER (PARTITION BY prog_key, name, prog_type, host_id) AS kernel_last,
         MIN(CASE WHEN is_new = 1 THEN version_low END) OVER (PARTITION BY prog_key, name, prog_type, host_id) AS version_first,
         MAX(CASE WHEN is_new = 1 THEN version_high END) OVER (PARTITION BY prog_key, name, prog_type, host_id) AS version_last
  FROM recorded),
expected AS (
  SELECT prog_key, name, prog_type, host_id, date, is_new, version_high, runs, cpu_ns, margin_ns, observed_ns, capacity_ns,
         ${cohort} AS cohort,
         CASE WHEN base_runs > 0 THEN runs ELSE 0 END AS compared_runs,
         CASE WHEN base_runs > 0 THEN cpu_ns ELSE 0 END AS compared_ns,
         CASE WHEN base_runs > 0 THEN CAST(CAST(runs AS DOUBLE) * CAST(base_ns AS DOUBLE) / CAST(base_runs AS DOUBLE) AS BIGINT) ELSE 0 END
           AS expected_ns
  FROM matched),
host_days AS (
  SELECT prog_key, name, prog_type, cohort, host_id, date, is_new, MAX(version_high) AS version,
         SUM(runs) AS runs, SUM(cpu_ns) AS cpu_ns, SUM(margin_ns) AS margin_ns,
         SUM(observed_ns) AS observed_ns, SUM(capacity_ns) AS capacity_ns,
         SUM(compared_runs) AS compared_runs, SUM(compared_ns) AS compared_ns,
         SUM(CAST(expected_ns AS DECIMAL(20,0))) AS expected_ns
  FROM expected
  WHERE cohort IS NOT NULL
  GROUP BY prog_key, name, prog_type, cohort, host_id, date, is_new),
weighted AS (
  SELECT prog_key, name, prog_type, cohort, host_id, date, is_new, version, runs, cpu_ns, observed_ns, capacity_ns, expected_ns,
         CASE WHEN compared_runs >= ${min_runs} AND compared_ns > 0 AND expected_ns > 0
              THEN CAST(compared_ns AS DOUBLE) / CAST(expected_ns AS DOUBLE) END AS ratio,
         CASE WHEN compared_runs >= ${min_runs} AND compared_ns > 0 AND expected_ns > 0
              THEN 1 + CAST(99e0 / (1e0 + 400e0 * CAST(margin_ns AS DOUBLE) * CAST(margin_ns AS DOUBLE)
                                              / (CAST(cpu_ns AS DOUBLE) * CAST(cpu_ns AS DOUBLE))) AS BIGINT)
              ELSE 0 END AS weight
  FROM host_days),
ranked AS (
  SELECT prog_key, name, prog_type, cohort, date, is_new, version, runs, cpu_ns, observed_ns, capacity_ns, expected_ns, ratio,
         SUM(weight) OVER (PARTITION BY prog_key, name, prog_type, cohort, date ORDER BY ratio NULLS FIRST, host_id NULLS FIRST
                           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS weight_up_to,
         SUM(weight) OVER (PARTITION BY prog_key, name, prog_type, cohort, date) AS weight_of_all
  FROM weighted)
SELECT prog_key, name, prog_type, cohort, date, is_new, NULLIF(MAX(version), '') AS version, COUNT(*) AS hosts, COUNT(ratio) AS compared_hosts,
       MIN(CASE WHEN 2 * weight_up_to >= weight_of_all THEN ratio END) AS ratio,
       SUM(runs) AS runs, SUM(cpu_ns) AS cpu_ns, SUM(expected_ns) AS expected_ns,
       CASE WHEN COUNT(observed_ns) = COUNT(*) THEN SUM(observed_ns) END AS observed_ns,
       CASE WHEN COUNT(capacity_ns) = COUNT(*) THEN SUM(capacity_ns) END AS capacity_ns
FROM ranked
GROUP BY prog_key, name, prog_type, cohort, date, is_new
ORDER BY prog_key, name, prog_type NULLS LAST, cohort, date
