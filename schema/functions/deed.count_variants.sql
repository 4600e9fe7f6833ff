-- deed.count_variants: which variant of a run's test does best by now, as deed.decide_winners
-- says, and of each how many went out, were clicked in and complained of.
create or replace function deed.count_variants(
  in  p_run   uuid,
  out winner  text,
  out details jsonb
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
  with run as (
    select r.id, r.options #>> '{test,by}' as by, s.names, s.share, s.salt
    from deed.campaign_runs r
    cross join lateral deed.cells_of(r.options, r.request_id) s
    where r.id = p_run
  ),
  counted as (
    select deed.variant_of(r.names, r.share, r.salt, c.contact_id) as name, count(*) as sent, count(f.clicked_at) as clicked, count(f.complained_at) as complained
    from run r
    join deed.job_queue j on j.run_id = r.id and j.part = 'test'
    join deed.channel_outbox c on c.run_id = j.run_id and c.job_id = j.id and c.status in ('sent', 'called', 'posted')
    left join deed.delivery_feedback f on f.delivery_id = c.id
    group by 1
  ),
  each as (
    select v.name, v.n, r.by, coalesce(c.sent, 0) as sent, coalesce(c.clicked, 0) as clicked, coalesce(c.complained, 0) as complained
    from run r
    cross join lateral unnest(r.names) with ordinality v(name, n)
    left join counted c on c.name = v.name
  )
  select (array_agg(e.name order by e.sent = 0, case e.by when 'complaints' then e.complained when 'clicks' then -e.clicked end::numeric / greatest(e.sent, 1), e.n))[1],
    jsonb_build_object('by', min(e.by), 'variants', jsonb_object_agg(e.name, jsonb_build_object('sent', e.sent, 'clicked', e.clicked, 'complained', e.complained)))
  from each e
$$;
