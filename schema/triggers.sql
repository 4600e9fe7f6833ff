-- Triggers, run after every replacement of the functions that they call; and
-- what stored rows owe to functions that may have changed.
create or replace trigger audit_log_append_only before delete or truncate on deed.audit_log
  for each statement execute function deed.refuse_change();
-- An erasure takes a reason away, and puts a mark where an address stood; the removal of a
-- tenant takes the mark away, a plan's name, and what others wrote into the details.
create or replace trigger audit_log_rewrite before update on deed.audit_log
  for each row when (
    (new.reason is distinct from old.reason and (old.reason is null or new.reason is distinct from 'erased'))
    or (new.subject_id is distinct from old.subject_id and (old.subject_type <> 'suppression' or new.subject_id !~ '^[a-z]+:hmac:[0-9a-f]{32}$') is not false
      and not (new.subject_id is null and old.subject_type in ('suppression', 'plan') and deed.is_removed(old.tenant_id)))
    or old.n is distinct from new.n or old.at is distinct from new.at or old.tenant_id is distinct from new.tenant_id or old.run_id is distinct from new.run_id
    or old.actor is distinct from new.actor or old.login is distinct from new.login or old.action is distinct from new.action
    or old.subject_type is distinct from new.subject_type or old.from_status is distinct from new.from_status
    or old.to_status is distinct from new.to_status or old.affected is distinct from new.affected or (old.details is distinct from new.details
      and not (new.details is not distinct from old.details - array['last_error', 'error', 'source', 'message_id'] and deed.is_removed(old.tenant_id)))
  ) execute function deed.refuse_change();
create or replace trigger audit_log_salts after update on deed.audit_log
  for each row when (new.reason is distinct from old.reason or new.subject_id is distinct from old.subject_id or new.details is distinct from old.details)
  execute function deed.forget_salts();
create or replace trigger audit_seals_append_only before update or delete or truncate on deed.audit_seals
  for each statement execute function deed.refuse_change();
create or replace trigger audit_blinds_append_only before delete or truncate on deed.audit_blinds
  for each statement execute function deed.refuse_change();
create or replace trigger audit_blinds_rewrite before update on deed.audit_blinds
  for each row when (new.salt is not null or new.n <> old.n or new.part <> old.part or new.sha256 <> old.sha256)
  execute function deed.refuse_change();
-- Without the key nobody knows a mark again.
create or replace trigger secrets_append_only before update or delete or truncate on deed.secrets
  for each statement execute function deed.refuse_change();
create or replace trigger consents_append_only before truncate on deed.consents
  for each statement execute function deed.refuse_change();
create or replace trigger consents_delete before delete on deed.consents
  for each row execute function deed.refuse_change();
-- An erasure takes the evidence away; what was said, when and through whom stays.
create or replace trigger consents_rewrite before update on deed.consents
  for each row when (
    new.evidence <> '{}' or old.n is distinct from new.n or old.tenant_id is distinct from new.tenant_id
    or old.contact_id is distinct from new.contact_id or old.channel is distinct from new.channel or old.purpose is distinct from new.purpose
    or old.state is distinct from new.state or old.source is distinct from new.source or old.actor is distinct from new.actor
    or old.at is distinct from new.at or old.expires_at is distinct from new.expires_at
  ) execute function deed.refuse_change();

create or replace trigger channel_outbox_insert before insert on deed.channel_outbox
  for each row when (new.status <> 'queued') execute function deed.check_transition();
-- The conditions let the way of most deliveries through without a call of a
-- function, which would be a fifth of a row's price. What the first leaves out,
-- deed.delivery_transitions allows the ledger (TestContract_D3_OnlyTheTransitions).
create or replace trigger channel_outbox_transition before update on deed.channel_outbox
  for each row when (
    old.status <> new.status
    and (old.status <> 'queued' or new.status <> 'sending')
    and (old.status <> 'sending' or new.status not in ('sent', 'called', 'posted'))
  ) execute function deed.check_transition();
create or replace trigger channel_outbox_due before update of status, process_after, doubt_since, held_at on deed.channel_outbox
  for each row when (
    new.due is distinct from (
      (new.process_after is null or new.process_after <= clock_timestamp())
      and (new.status = 'queued' or (new.status = 'sending' and new.doubt_since is not null and new.held_at is null))
    )
    or (new.status = 'queued' and (old.finished_at is not null or old.held_at is not null))
  ) execute function deed.mark_due();
create or replace trigger channel_outbox_rewrite before update of id, tenant_id, workspace_id, idempotency_key, provider, channel, request, recipient, erased_at on deed.channel_outbox
  for each row when (
    old.id is distinct from new.id or old.tenant_id is distinct from new.tenant_id or old.workspace_id is distinct from new.workspace_id
    or old.idempotency_key is distinct from new.idempotency_key or old.provider is distinct from new.provider
    or old.channel is distinct from new.channel or (old.request is not null and old.request is distinct from new.request and (
      -- What a campaign has sent leaves its hash (deed.settle): most often.
      new.request is not null or old.status <> 'sending' or new.status not in ('sent', 'called', 'posted') or new.run_id is null or new.finished_at is null
      or new.request_sha256 is distinct from sha256(old.request)
    ))
    or (old.erased_at is not null and (new.erased_at is distinct from old.erased_at or new.request is not null or new.recipient is not null))
  ) execute function deed.refuse_rewrite();
create or replace trigger channel_outbox_delete before delete on deed.channel_outbox
  for each row when (old.finished_at is null) execute function deed.refuse_rewrite();
create or replace trigger channel_messages_insert before insert on deed.channel_messages
  for each row when (new.status <> 'accepted') execute function deed.check_message();
create or replace trigger channel_messages_transition before update on deed.channel_messages
  for each row when (old.status <> new.status and (old.status <> 'accepted' or new.status <> 'executed')) execute function deed.check_message();
create or replace trigger channel_messages_delete before delete on deed.channel_messages
  for each row when (old.finished_at is null) execute function deed.check_message();
create or replace trigger channel_messages_truncate before truncate on deed.channel_messages
  for each statement execute function deed.refuse_change();
create or replace trigger channel_outbox_truncate before truncate on deed.channel_outbox
  for each statement execute function deed.refuse_change();

-- A run stays the one that was asked for, and what has ended stays as it ended.
create or replace trigger runs_rewrite before update on deed.runs
  for each row when (
    old.run_id is distinct from new.run_id or old.tenant_id is distinct from new.tenant_id or old.project is distinct from new.project
    or old.environment is distinct from new.environment or old.plan_id is distinct from new.plan_id or old.plan_version is distinct from new.plan_version
    or old.plan_sha256 is distinct from new.plan_sha256 or old.input_sha256 is distinct from new.input_sha256 or old.input is distinct from new.input
    or old.created_at is distinct from new.created_at or old.original_run_id is distinct from new.original_run_id
    or old.parent_run_id is distinct from new.parent_run_id or old.parent_step_id is distinct from new.parent_step_id
    or (old.finished_at is not null and (old.status is distinct from new.status or old.finished_at is distinct from new.finished_at))
  ) execute function deed.refuse_run_change();
create or replace trigger runs_delete before delete on deed.runs for each row execute function deed.refuse_run_change();
create or replace trigger runs_truncate before truncate on deed.runs for each statement execute function deed.refuse_run_change();
create or replace trigger run_log_rewrite before update on deed.run_log for each row execute function deed.refuse_run_change();
create or replace trigger run_log_delete before delete on deed.run_log for each row execute function deed.refuse_run_change();
create or replace trigger run_log_truncate before truncate on deed.run_log for each statement execute function deed.refuse_run_change();
create or replace trigger run_snapshots_rewrite before update on deed.run_snapshots for each row execute function deed.refuse_change();

-- Campaigns: what is said and to whom never changes, and runs and jobs change as
-- deed.campaign_transitions says.
create or replace trigger campaign_contents_rewrite before update or delete on deed.campaign_contents
  for each row execute function deed.refuse_campaign_change();
create or replace trigger campaign_contents_truncate before truncate on deed.campaign_contents for each statement execute function deed.refuse_change();
create or replace trigger audience_members_ready after insert on deed.audience_members
  referencing new table as made for each statement execute function deed.refuse_members();
create or replace trigger audience_members_rewrite before update on deed.audience_members
  for each row when (
    old.audience_id <> new.audience_id or old.n <> new.n or old.tenant_id <> new.tenant_id or old.contact_id <> new.contact_id
    or new.address is not null or new.zone is not null or new.data <> '{}'
  ) execute function deed.refuse_campaign_change();
create or replace trigger audience_members_delete before delete on deed.audience_members
  for each row execute function deed.refuse_campaign_change();
create or replace trigger audience_members_truncate before truncate on deed.audience_members for each statement execute function deed.refuse_change();
create or replace trigger audiences_rewrite before update on deed.audiences
  for each row when (
    old.status in ('ready', 'removing') or old.id <> new.id or old.tenant_id <> new.tenant_id or old.workspace_id <> new.workspace_id or old.name <> new.name
    or old.channel <> new.channel or old.created_at <> new.created_at or new.members < old.members
  ) execute function deed.refuse_campaign_change();
create or replace trigger audiences_delete before delete on deed.audiences for each row execute function deed.refuse_campaign_change();
create or replace trigger campaign_runs_insert before insert on deed.campaign_runs
  for each row when (new.status <> 'queued') execute function deed.check_campaign();
create or replace trigger campaign_runs_transition before update on deed.campaign_runs
  for each row when (
    old.status <> new.status or old.id <> new.id or old.campaign_id <> new.campaign_id or old.tenant_id <> new.tenant_id or old.workspace_id <> new.workspace_id
    or old.audience_id <> new.audience_id or old.content_id <> new.content_id or old.channel <> new.channel or old.provider <> new.provider or old.purpose <> new.purpose
    or old.request_id <> new.request_id or old.members <> new.members or old.retry_of is distinct from new.retry_of or old.scheduled_for <> new.scheduled_for or old.options <> new.options
    or (old.winner is not null and (old.winner, old.winner_at) is distinct from (new.winner, new.winner_at))
    or (old.sealed_at is not null and (old.sealed, old.sealed_at) is distinct from (new.sealed, new.sealed_at))
    or old.zones is distinct from new.zones or old.last_due is distinct from new.last_due
    or old.finished_at is distinct from new.finished_at or (old.cancelled_at is not null and old.cancelled_at is distinct from new.cancelled_at)
  ) execute function deed.check_campaign();
create or replace trigger campaign_runs_delete before delete on deed.campaign_runs for each row execute function deed.check_campaign();
create or replace trigger campaign_runs_truncate before truncate on deed.campaign_runs for each statement execute function deed.refuse_change();
create or replace trigger job_queue_insert before insert on deed.job_queue
  for each row when (new.status <> 'queued') execute function deed.check_campaign();
create or replace trigger job_queue_transition before update on deed.job_queue
  for each row when (
    old.status <> new.status or old.id <> new.id or old.run_id <> new.run_id or old.tenant_id <> new.tenant_id or old.workspace_id <> new.workspace_id
    or old.job_type <> new.job_type or old.from_n <> new.from_n or old.upto_n <> new.upto_n or old.part is distinct from new.part or old.members is distinct from new.members or (old.expanded_at is not null and old.expanded_at is distinct from new.expanded_at)
  ) execute function deed.check_campaign();
create or replace trigger job_queue_delete before delete on deed.job_queue for each row execute function deed.check_campaign();
create or replace trigger job_queue_truncate before truncate on deed.job_queue for each statement execute function deed.refuse_change();

select deed.refold_suppressions();
-- Who gets copies of e-mails that were reserved before there was a column for them: who may not be
-- written to is looked for there, and so is who is erased.
update deed.channel_outbox c
set cc = deed.payload_copies(c.payload)
from (
  select o.id
  from deed.channel_outbox o
  where o.status in ('queued', 'sending') and o.channel = 'email' and o.cc is null and o.erased_at is null
    and o.created_at < (select m.applied_at + interval '1 day' from deed.migrations m where m.version = 79)
  offset 0
) q
where c.id = q.id and c.payload ?| '{cc,CC,Cc,cC}' and array_position(deed.payload_copies(c.payload), null) is null;
-- A subscription that an older deed.subscribe has made meanwhile is noted, too.
insert into deed.attended (subscription, asked_at)
select s.id, clock_timestamp() from deed.subscriptions s
on conflict do nothing;
