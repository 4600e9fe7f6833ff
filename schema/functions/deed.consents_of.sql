-- deed.consents_of: what contacts agree to by now, one row a channel and purpose.
--
-- A contact's last word counts, and a word for the one it has been merged into is
-- its own from the merge on. Where the parts of a merged contact differ, a revocation
-- wins until a later grant. Being asked (pending) changes nothing that was said
-- before; state is null where somebody was asked and did not answer in time.
-- p_contacts are contacts that were merged into no other (deed.contact_of). Each is looked for by an
-- index, in turn (offset 0), whatever the tables held when that was planned.
create or replace function deed.consents_of(p_contacts uuid[]) returns table (
  contact_id uuid, channel text, purpose text, state text, n bigint, at timestamptz, expires_at timestamptz
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
begin atomic
  with recursive
  named as ( -- under which ids a contact is known
    select r.id as root, r.id from unnest(p_contacts) r(id)
    union all
    select d.root, c.id from named d cross join lateral (select o.id from deed.contacts o where o.merged_into = d.id offset 0) c
  ),
  heard as ( -- whose words are theirs, from which number on
    select d.root, d.id, d.id as said_for, 0::bigint as since from named d
    union all
    select h.root, h.id, c.merged_into, greatest(h.since, m.n)
    from heard h
    cross join lateral (select o.merged_into from deed.contacts o where o.id = h.said_for and o.merged_into is not null offset 0) c
    cross join lateral (select o.n from deed.contact_merges o where o.from_id = h.said_for and o.undone_at is null offset 0) m
  ),
  words as (
    select distinct on (h.root, h.id, e.channel, e.purpose) h.root, e.channel, e.purpose, e.state, e.n, e.at
    from heard h
    cross join lateral (
      select o.channel, o.purpose, o.state, o.n, o.at from deed.consents o where o.contact_id = h.said_for and o.n > h.since and o.state <> 'pending' offset 0
    ) e
    order by h.root, h.id, e.channel, e.purpose, e.n desc
  ),
  asked as (
    select d.root, e.channel, e.purpose, max(e.n) as n, max(e.at) as at, max(e.expires_at) as expires_at
    from named d
    cross join lateral (
      select o.channel, o.purpose, o.n, o.at, o.expires_at from deed.consents o where o.contact_id = d.id and o.state = 'pending' offset 0
    ) e
    group by d.root, e.channel, e.purpose
  ),
  said as (
    select distinct on (w.root, w.channel, w.purpose) w.root, w.channel, w.purpose, w.state, w.n, w.at
    from words w
    order by w.root, w.channel, w.purpose, w.state = 'revoked' desc, w.n desc
  )
  select coalesce(s.root, a.root), coalesce(s.channel, a.channel), coalesce(s.purpose, a.purpose),
    case when s.state is not null then s.state when a.expires_at > statement_timestamp() then 'pending' end,
    coalesce(s.n, a.n), coalesce(s.at, a.at), case when a.n > coalesce(s.n, 0) and s.state is distinct from 'granted' then a.expires_at end
  from said s
  full join asked a on a.root = s.root and a.channel = s.channel and a.purpose = s.purpose;
end;
