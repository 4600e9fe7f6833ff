-- breaking: no
-- What deed.verify needs to tell a message that was put aside and lost from one
-- that was delivered, and a record that somebody removed from one that retention
-- did.

-- Which messages of a page were put aside; null on pages of older programs.
alter table deed.progress add column aside_ids bigint[];
alter table deed.progress
  add constraint progress_aside_is_listed check (aside_ids is null or cardinality(aside_ids) = aside) not valid;

-- The records of a lane are kept from this page on. since: from which version
-- of the list on the lane read messages; null of lanes that ended before.
alter table deed.lanes add column kept_from bigint not null default 0;
alter table deed.former_lanes
  add column kept_from bigint not null default 0,
  add column since     bigint;

update deed.lanes l set kept_from = o.n
from (select g.subscription, g.lane, min(g.n) as n from deed.progress g group by g.subscription, g.lane) o
where o.subscription = l.subscription and o.lane = l.lane and o.n > 0;
update deed.former_lanes l set kept_from = o.n
from (select g.subscription, g.lane, min(g.n) as n from deed.progress g group by g.subscription, g.lane) o
where o.subscription = l.subscription and o.lane = l.lane and o.n > 0;
