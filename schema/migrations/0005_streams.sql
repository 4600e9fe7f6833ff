-- breaking: no
-- Streams: topics whose messages are read from the log, from one window to a
-- later one, by whoever holds the lane.

-- A lane is a group of slots under one lease. fence moves on with every owner;
-- takeovers counts those that found the lane where the one before had taken it.
create table deed.lanes (
  subscription int         not null,
  lane         int         not null,
  slot_from    int         not null,
  slot_upto    int         not null,
  fence        bigint      not null default 0,
  worker       uuid,
  lease_until  timestamptz,
  taken_n      bigint      not null default 0,
  takeovers    int         not null default 0,
  paused_at    bigint,
  constraint lanes_pkey primary key (subscription, lane),
  constraint lanes_is_range check (slot_upto >= slot_from),
  constraint lanes_held_under_lease check (num_nulls(worker, lease_until) in (0, 2))
) with (fillfactor = 50);

-- The lanes that others have replaced: of which slots their pages were.
create table deed.former_lanes (
  subscription int         not null,
  lane         int         not null,
  slot_from    int         not null,
  slot_upto    int         not null,
  ended_at     timestamptz not null default clock_timestamp(),
  constraint former_lanes_pkey primary key (subscription, lane)
);

-- One row per finished page, append-only: where a lane is, and the receipt of
-- streams (O16). Two owners collide on the key, which is the fence. Everything
-- visible in from_window has been read; of to_window's, if that is not null,
-- what comes up to (slot, id) in the order of deed.page.
create table deed.progress (
  subscription int         not null,
  lane         int         not null,
  n            bigint      not null,
  fence        bigint      not null,
  from_window  bigint      not null,
  to_window    bigint,
  slot         int         not null default -2,
  id           bigint      not null default 0,
  messages     int         not null default 0,
  aside        int         not null default 0,
  total        bigint      not null default 0,
  min_id       bigint,
  max_id       bigint,
  worker       text,
  finished_at  timestamptz not null default clock_timestamp(),
  constraint progress_pkey primary key (subscription, lane, n)
);

-- The processes that read streams, for sharing out the lanes.
create table deed.relays (
  subscription int         not null,
  worker       uuid        not null,
  name         text        not null,
  seen_until   timestamptz not null,
  constraint relays_pkey primary key (subscription, worker)
) with (fillfactor = 50);

-- A change of lanes under way: each lane stops between two windows, where its
-- paused_at says; then all go on to the last of these, window_n, and new lanes
-- begin there.
create table deed.relanings (
  subscription int         not null,
  window_n     bigint,
  lanes        int         not null,
  mode         text        not null default 'stream',
  asked_at     timestamptz not null default clock_timestamp(),
  constraint relanings_pkey primary key (subscription)
);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['lanes', 'former_lanes', 'progress', 'relays', 'relanings'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
  end loop;
end
$$;
