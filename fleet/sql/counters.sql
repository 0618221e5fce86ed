-- Counters by processor model. Values are unscaled; `per_run` is scaled by enabled and running time.
WITH machine AS (
  SELECT host_id, start_time, MAX(cpu_model) AS cpu_model
  FROM recording
  WHERE date >= '${since}' AND date <= '${until}'
  GROUP BY host_id, start_time),
summed AS (
  SELECT c.source, c.scope, c.event, m.cpu_model, c.prog_key, c.name, c.func, COUNT(DISTINCT c.host_id) AS hosts,
         SUM(CAST(c.value AS DECIMAL(20,0))) AS total,
         SUM(CAST(c.time_enabled_ns AS DECIMAL(20,0))) AS enabled_ns,
         SUM(CAST(c.time_running_ns AS DECIMAL(20,0))) AS running_ns,
         CASE WHEN COUNT(c.runs) = COUNT(*) THEN SUM(CAST(c.runs AS DECIMAL(20,0))) END AS runs,
         CASE WHEN COUNT(c.measured_runs) = COUNT(*) THEN SUM(CAST(c.measured_runs AS DECIMAL(20,0))) END AS measured_runs
  FROM counter c LEFT JOIN machine m ON c.host_id = m.host_id AND c.window_start = m.start_time
  WHERE c.date >= '${since}' AND c.date <= '${until}'
  GROUP BY c.source, c.scope, c.event, m.cpu_model, c.prog_key, c.name, c.func)
SELECT source, scope, event, cpu_model, prog_key, name, func, hosts, total, enabled_ns, running_ns, runs, measured_runs,
       CASE WHEN measured_runs > 0 AND running_ns > 0
            THEN CAST(total AS DOUBLE) * CAST(enabled_ns AS DOUBLE) / CAST(running_ns AS DOUBLE) / CAST(measured_runs AS DOUBLE) END AS per_run
FROM summed
ORDER BY source, scope, event, total DESC, cpu_model NULLS LAST, prog_key NULLS LAST, name NULLS LAST, func NULLS LAST
LIMIT ${limit}
