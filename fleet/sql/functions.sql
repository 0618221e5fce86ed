-- Functions by the weight of their samples. Events stay apart: weights of different events cannot be added.
WITH totals AS (
  SELECT event, unit, SUM(CAST(weight AS DECIMAL(20,0))) AS of_bpf
  FROM sample
  WHERE date >= '${since}' AND date <= '${until}'
  GROUP BY event, unit),
summed AS (
  SELECT event, unit, scope, prog_key, name, prog_type, func, COUNT(DISTINCT host_id) AS hosts,
         SUM(CAST(samples AS DECIMAL(20,0))) AS samples,
         SUM(CAST(weight AS DECIMAL(20,0))) AS weight,
         CASE WHEN COUNT(self_weight) = COUNT(*) THEN SUM(CAST(self_weight AS DECIMAL(20,0))) END AS self_weight
  FROM sample
  WHERE date >= '${since}' AND date <= '${until}'
  GROUP BY event, unit, scope, prog_key, name, prog_type, func)
SELECT s.event, s.unit, s.scope, s.prog_key, s.name, s.prog_type, s.func, s.hosts, s.samples, s.weight, s.self_weight,
       CASE WHEN t.of_bpf > 0 THEN CAST(s.weight AS DOUBLE) * 1e2 / CAST(t.of_bpf AS DOUBLE) END AS bpf_percent
FROM summed s JOIN totals t ON s.event = t.event AND s.unit = t.unit
ORDER BY s.event, s.unit, s.weight DESC, s.scope, s.prog_key NULLS LAST, s.name NULLS LAST, s.prog_type NULLS LAST, s.func NULLS LAST
LIMIT ${limit}
