-- What each program did on each host before and after: pairs, of which the statistics are made elsewhere. Kernels stay apart.
WITH recorded AS (
  SELECT prog_key, name, prog_type, kernel_release, host_id, window_start,
         CASE WHEN date >= '${since}' THEN 1 ELSE 0 END AS is_new,
         SUM(CAST(run_cnt AS DECIMAL(20,0))) AS runs,
         SUM(CAST(run_time_ns AS DECIMAL(20,0))) AS cpu_ns,
         MAX(CAST(observed_ns AS DECIMAL(20,0))) AS observed_ns,
         MAX(CAST(observed_ns AS DECIMAL(20,0)) * CAST(cpu_count AS DECIMAL(10,0))) AS capacity_ns
  FROM run_stats
  WHERE counts_others = FALSE
    AND ((date >= '${base_since}' AND date <= '${base_until}') OR (date >= '${since}' AND date <= '${until}'))
  GROUP BY prog_key, name, prog_type, kernel_release, host_id, window_start, CASE WHEN date >= '${since}' THEN 1 ELSE 0 END)
SELECT prog_key, name, prog_type, kernel_release, host_id,
       SUM(CASE WHEN is_new = 0 THEN runs ELSE 0 END) AS runs_old,
       SUM(CASE WHEN is_new = 1 THEN runs ELSE 0 END) AS runs_new,
       SUM(CASE WHEN is_new = 0 THEN cpu_ns ELSE 0 END) AS cpu_ns_old,
       SUM(CASE WHEN is_new = 1 THEN cpu_ns ELSE 0 END) AS cpu_ns_new,
       SUM(CASE WHEN is_new = 0 THEN observed_ns ELSE 0 END) AS observed_ns_old,
       SUM(CASE WHEN is_new = 1 THEN observed_ns ELSE 0 END) AS observed_ns_new,
       SUM(CASE WHEN is_new = 0 THEN capacity_ns ELSE 0 END) AS capacity_ns_old,
       SUM(CASE WHEN is_new = 1 THEN capacity_ns ELSE 0 END) AS capacity_ns_new,
       SUM(1 - is_new) AS recordings_old, SUM(is_new) AS recordings_new
FROM recorded
GROUP BY prog_key, name, prog_type, kernel_release, host_id
ORDER BY prog_key, name, prog_type NULLS LAST, kernel_release NULLS LAST, host_id NULLS LAST
