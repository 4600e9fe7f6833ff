-- deed.timeline: the server's timeline, which every promotion of a standby and
-- every recovery to a point in time moves on. As one expression, which is inlined.
create or replace function deed.timeline() returns bigint
language sql
volatile
return ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int::bigint;
