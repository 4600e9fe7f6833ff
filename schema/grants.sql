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
  deed.window_late, deed.page, deed.finish_page, deed.attend, deed.release_keys, deed.lag,
  deed.take_lanes, deed.release_lane, deed.pause_lane, deed.leave_relays,
  deed.open_window, deed.declare_topic, deed.check_topic, deed.subscribe, deed.backfill, deed.keep_partitions, deed.purge_keys
to deed_worker;

grant execute on function deed.retention, deed.retention_step, deed.purge_history, deed.purge_kept to deed_worker, deed_admin;

grant execute on function deed.status, deed.verify, deed.blocked_keys to deed_worker, deed_admin;

grant execute on function
  deed.redrive, deed.add_tenant, deed.declare_topic, deed.check_topic, deed.set_topic, deed.lag, deed.subscribe, deed.set_subscription
to deed_admin;
