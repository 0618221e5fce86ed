-- Owners of programs by the samples of their bills. Events stay apart: weights of different events cannot be added.
WITH recorded AS (
  SELECT owner, owner_kind, event, unit, host_id, window_start,
         SUM(CAST(weight AS DECIMAL(20,0))) AS weight,
         SUM(CAST(others_weight AS DECIMAL(20,0))) AS others_weight,
         SUM(CAST(own_weight AS DECIMAL(20,0))) AS own_weight,
         SUM(CAST(causes_weight AS DECIMAL(20,0))) AS causes_weight,
         SUM(CAST(unsampled_ns AS DECIMAL(20,0))) AS unsampled_ns,
         MAX(CAST(machine_weight AS DECIMAL(20,0))) AS machine_weight
  FROM bill
  WHERE date >= '${since}' AND date <= '${until}'
  GROUP BY owner, owner_kind, event, unit, host_id, window_start),
summed AS (
  SELECT owner, owner_kind, event, unit, COUNT(DISTINCT host_id) AS hosts, COUNT(*) AS recordings, SUM(weight) AS weight,
         SUM(others_weight) AS others_weight, SUM(own_weight) AS own_weight, SUM(causes_weight) AS causes_weight,
         SUM(unsampled_ns) AS unsampled_ns,
         CASE WHEN COUNT(machine_weight) = COUNT(*) THEN SUM(machine_weight) END AS machine_weight
  FROM recorded
  GROUP BY owner, owner_kind, event, unit)
SELECT owner, owner_kind, event, unit, hosts, recordings, weight, others_weight, own_weight, causes_weight, unsampled_ns,
       CASE WHEN machine_weight > 0 THEN CAST(weight AS DOUBLE) * 1e2 / CAST(machine_weight AS DOUBLE) END AS capacity_percent
FROM summed
ORDER BY event, unit, weight DESC, owner NULLS LAST, owner_kind NULLS LAST
LIMIT ${limit}
