-- Who may call what. Run after every replacement of the functions.
revoke all on schema deed from public;
grant usage on schema deed to deed_app, deed_worker, deed_admin;
revoke all on all functions in schema deed from public;

grant execute on function
  deed.publish, deed.publish_one, deed.publish_many, deed.publish_problems,
  deed.message_id, deed.message_seq, deed.slot, deed.is_json, deed.is_bad_header
to deed_app, deed_worker, deed_admin;

grant execute on function
  deed.claim, deed.extend, deed.finish, deed.fail, deed.watch, deed.next_due, deed.unfinished,
  deed.open_window, deed.subscribe, deed.backfill, deed.keep_partitions, deed.purge_keys
to deed_worker;

grant execute on function deed.status, deed.verify to deed_worker, deed_admin;

grant execute on function
  deed.redrive, deed.add_tenant, deed.subscribe, deed.set_subscription
to deed_admin;

-- Deliveries. What these functions call, they call as the owner.
grant execute on function deed.idempotency_key, deed.reserve, deed.suppress, deed.unsuppress to deed_app, deed_worker, deed_admin;
grant execute on function
  deed.claim_deliveries, deed.next_delivery, deed.attempt, deed.extend_deliveries, deed.settle, deed.claim_doubts,
  deed.prove_delivery, deed.register_provider, deed.relane_deliveries, deed.purge_deliveries
to deed_worker;
grant execute on function deed.settle_delivery, deed.retry_deliveries to deed_admin;
