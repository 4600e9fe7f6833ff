-- breaking: no
-- Deliveries that one call makes, and that are repeated together or never: in which batch
-- the last call of each was, and its place among so many. Under the batch's own key, which
-- is made of its id. batch_until is until when that may be repeated, and null once it never
-- may. The bytes are the members' requests. 0133 looks at what there is: the lock that this
-- takes nobody can read beside.
alter table deed.channel_outbox
  add column batch_id    uuid,
  add column batch_place smallint,
  add column batch_size  smallint,
  add column batch_until timestamptz,
  add constraint channel_outbox_batch_is_whole
    check (num_nulls(batch_id, batch_place, batch_size) in (0, 3) and batch_place between 1 and batch_size and (batch_until is null or batch_id is not null)) not valid;
