-- breaking: no
-- Up to which number a partition of the log has messages, once the next is in use,
-- and which of its pages are summarised by number. A publisher that had its number
-- from before may come a little later: a look begins above last_id.
alter table deed.partitions
  add column last_id    bigint,
  add column summarised int not null default 0;

create index redrives_started_idx on deed.redrives (started_at, request);

-- Of those that are closed it is searched for, by halves.
do $$
declare
  v_p    record;
  v_low  bigint;
  v_high bigint;
  v_mid  bigint;
begin
  set local enable_seqscan = off;
  set local enable_indexscan = off;
  for v_p in
    select p.n, p.from_id, p.upto_id
    from deed.partitions p
    where p.emptied_at is null and p.n < (select max(o.n) from deed.partitions o where o.opened_at is not null)
  loop
    v_low := v_p.from_id;
    v_high := v_p.upto_id - 1;
    while v_low < v_high loop
      v_mid := v_low + (v_high - v_low + 1) / 2;
      if exists (select from deed.log l where l.id >= v_mid and l.id <= v_high) then
        v_low := v_mid;
      else
        v_high := v_mid - 1;
      end if;
    end loop;
    update deed.partitions p set last_id = v_low where p.n = v_p.n;
  end loop;
end
$$;
