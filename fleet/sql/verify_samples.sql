-- Events whose weight charged to BPF is not the sum over all programs and functions in `sample`.
WITH charged AS (
  SELECT host_id, window_start, event, SUM(CAST(weight AS DECIMAL(20,0))) AS weight
  FROM sample
  GROUP BY host_id, window_start, event),
whole AS (
  SELECT host_id, window_start, event, SUM(CAST(bpf_weight AS DECIMAL(20,0))) AS weight
  FROM event
  GROUP BY host_id, window_start, event)
SELECT e.host_id, e.window_start, e.event, e.weight, s.weight AS charged
FROM whole e LEFT JOIN charged s
  ON (e.host_id IS NOT DISTINCT FROM s.host_id) AND (e.window_start IS NOT DISTINCT FROM s.window_start) AND e.event = s.event
WHERE e.weight <> COALESCE(s.weight, 0)
