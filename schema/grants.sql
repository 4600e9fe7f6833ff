-- Who may call what. Run after every replacement of the functions.
revoke all on schema deed from public;
grant usage on schema deed to deed_app, deed_worker, deed_admin;
revoke all on all functions in schema deed from public;

grant execute on function
  deed.publish, deed.publish_one, deed.publish_many, deed.publish_problems,
  deed.current_tenant, deed.message_id, deed.message_seq, deed.slot, deed.is_json, deed.is_bad_header, deed.payload_json, deed.has_vast_numbers, deed.is_deep, deed.json_excess, deed.order_at, deed.doors
to deed_app, deed_worker, deed_admin;

grant execute on function
  deed.claim, deed.extend, deed.finish, deed.fail, deed.watch, deed.next_due, deed.next_claimable, deed.unfinished,
  deed.page, deed.finish_page, deed.attend, deed.lock_keys, deed.release_keys, deed.heal_keys, deed.keys_aside, deed.lag,
  deed.take_lanes, deed.release_lane, deed.pause_lane, deed.leave_relays, deed.report_calls, deed.report_pauses,
  deed.open_window, deed.declare_topic, deed.check_topic, deed.subscribe, deed.backfill, deed.keep_partitions, deed.summarise_log, deed.tally, deed.purge_keys,
  deed.claim_doors, deed.finish_doors
to deed_worker;

grant execute on function deed.log_extents, deed.look_by_number, deed.look_at_kept, deed.look_at_suppressions, deed.tail_window to deed_app, deed_worker, deed_admin;
grant execute on function
  deed.look_by_topic, deed.look_at_dead, deed.look_at_audit, deed.look_at_deliveries, deed.look_at_contents, deed.look_at_blocked, deed.blocked_keys, deed.status, deed.look_at_topics, deed.look_at_providers, deed.look_at_rates, deed.count_pending, deed.count_unread, deed.verify, deed.verify_streams, deed.verify_references, deed.verify_queues, deed.verify_deliveries, deed.verify_messages, deed.verify_runs, deed.verify_plans, deed.plan_graph, deed.plan_duration, deed.verify_steps, deed.verify_campaigns, deed.oldest_calls, deed.oldest_pauses, deed.unattended, deed.ask_purge, deed.purge, deed.reschedule, deed.dead_letters, deed.stream_states, deed.was_read, deed.window_late, deed.late_xids
to deed_worker, deed_admin;
grant execute on function deed.held to deed_worker, deed_admin;
grant execute on function deed.start_here to deed_worker;
grant execute on function deed.adopt_cluster to deed_admin;
grant execute on function deed.retention, deed.retention_step, deed.purge_history, deed.purge_kept, deed.remove_step to deed_worker, deed_admin;

grant execute on function
  deed.redrive, deed.cancel_redrive, deed.discard, deed.add_tenant, deed.bind_login, deed.declare_topic, deed.check_topic, deed.set_topic, deed.lag,
  deed.subscribe, deed.set_subscription, deed.set_door, deed.remove_subscription, deed.remove_topic, deed.count_removal,
  deed.remove_tenant, deed.count_tenant
to deed_admin;

grant execute on function deed.audit_point, deed.audit_passed, deed.audit_unsealed, deed.put_audit_seal to deed_worker, deed_admin;

-- Workers and operators write through the functions alone, which run with the
-- owner's rights.
revoke insert, update, delete on deed.pending from deed_worker, deed_admin;
revoke insert on deed.receipts from deed_worker;
revoke insert on deed.audit_log from deed_worker, deed_admin;

-- Deliveries. What these functions call, they call as the owner.
grant execute on function deed.idempotency_key, deed.reserve, deed.put_content, deed.suppress, deed.upsert_contacts, deed.merge_contacts, deed.unmerge_contacts, deed.set_consents, deed.confirm_consent, deed.consents_of, deed.add_identity, deed.check_identity, deed.known_as, deed.contact_of, deed.names_of, deed.address_mark to deed_app, deed_worker, deed_admin;
-- Inbound messages.
grant execute on function deed.unsubscribe to deed_worker;
grant execute on function deed.accept_messages, deed.claim_messages, deed.extend_messages, deed.finish_messages, deed.purge_messages to deed_worker;
grant execute on function deed.retry_messages to deed_admin;
-- Somebody is forgotten by the tenant whose contact it is, or by an operator.
grant execute on function deed.erase_contact to deed_app, deed_admin;
-- What somebody asked for is taken back by that tenant, or by an operator.
grant execute on function deed.unsuppress, deed.remove_content to deed_app, deed_admin;
grant execute on function
  deed.fold_address, deed.check_address, deed.address_domain, deed.fold_case, deed.has_invisible, deed.domain_ascii,
  deed.punycode, deed.punycode_bias, deed.unpunycode
to deed_app, deed_worker, deed_admin;
grant execute on function
  deed.claim_deliveries, deed.attempt, deed.extend_deliveries, deed.note_attempts, deed.settle, deed.pause, deed.expire_deliveries, deed.expire_suppressions, deed.give_up_deliveries, deed.claim_doubts, deed.may_repeat,
  deed.prove_delivery, deed.record_events, deed.match_events, deed.match_late_events, deed.register_provider, deed.note_idle, deed.relane_deliveries, deed.forget_lanes, deed.purge_deliveries, deed.run_to_seal, deed.seal_run, deed.purge_run, deed.purge_contents, deed.delivery_contents, deed.erase_step, deed.mark_audit, deed.export_erasures,
  deed.remove_tenant_step
to deed_worker;
grant execute on function deed.settle_delivery, deed.retry_deliveries, deed.redrive_deliveries, deed.resume_provider to deed_admin;
-- Runs: the application asks for them and reads, workers append.
grant execute on function deed.put_plan, deed.load_plan, deed.create_run, deed.start_run, deed.start_requests, deed.event_key, deed.run_event_id to deed_app, deed_worker, deed_admin;
grant execute on function deed.append_events, deed.try_append_events, deed.store_snapshots, deed.runs_behind, deed.start_runs, deed.start_and_claim, deed.claim_steps, deed.begin_step, deed.announce_steps, deed.extend_steps, deed.finish_steps, deed.record_steps, deed.wake_steps to deed_worker;
grant execute on function deed.claim_external, deed.extend_external, deed.finish_external, deed.fail_external to deed_worker;
grant execute on function deed.register_functions, deed.serve_queues, deed.serve_external to deed_worker;
grant execute on function deed.unserved_queues to deed_worker, deed_admin;
grant execute on function deed.approve_run, deed.stop_run, deed.retry_step to deed_admin;
grant execute on function deed.retain_runs to deed_worker, deed_admin;
grant execute on function deed.redact_run to deed_admin;
grant execute on function deed.replace_snapshots to deed_worker, deed_admin;
-- Campaigns: the application says what, to whom and when, workers do it.
grant execute on function deed.put_campaign, deed.put_audience, deed.add_audience_members, deed.finish_audience, deed.deploy_campaign, deed.campaigns_served, deed.run_waits, deed.count_job, deed.cells_of, deed.variant_of, deed.erased_message_id to deed_app, deed_worker, deed_admin;
grant execute on function deed.note_campaigns, deed.claim_queued_jobs, deed.expand_job, deed.give_up_job, deed.put_back_job, deed.roll_up, deed.pause_failing, deed.sweep_runs, deed.decide_winners, deed.due_unheld to deed_worker;
grant execute on function deed.pause_run, deed.resume_run, deed.cancel_run, deed.retry_run, deed.choose_winner, deed.remove_audience to deed_app, deed_admin;
