-- deed.append_events: append what steps did to the logs of their runs, in the order given,
-- in the caller's transaction (R1 to R4). For workers, who may name runs of any tenant while none
-- is set.
--
-- The arrays are parallel; those from p_engine_attempts on may be null, and so may be what
-- stands in them: an event without a time is emitted now, one without data has {}.
-- StepCompleted and StepFailed carry started_at in their data, in RFC 3339: where their
-- StepStarted is missing, it is appended before them. Returns one row an event: its number in the run's log, its id, and
-- whether it is a repeat of one that is there (deed.event_key), whose number it has then;
-- of a repeat nothing is stored. Each event reaches the topic deed.run_events in the same transaction (R13).
--
-- Numbers have no gap and are in the order of commits: a run's row is locked until the
-- transaction ends. All or nothing: raises DDARG for what is wrong in itself, and for events
-- that only those functions append that decide them; DDNFD for an unknown run, DDTEN for
-- another tenant's; DDCON for what deed.run_transitions does not allow, for a step's
-- attempt that has ended or that the one before has not, for a removed tenant, and for what its engine records (deed.refuse_engines_steps). Under
-- REPEATABLE READ an append to the same run since the snapshot raises 40001: run the transaction again.
create or replace function deed.append_events(
  p_runs            uuid[],
  p_types           text[],
  p_steps           text[],
  p_attempts        int[],
  p_engine_attempts int[] default null,
  p_emitted_at      timestamptz[] default null,
  p_data            jsonb[] default null,
  p_signals         uuid[] default null,
  p_parents         uuid[] default null,
  p_adapter         text default null
) returns table (ordinal int, run_seq bigint, event_id uuid, repeated boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_seqs     bigint[];
  v_ids      uuid[];
  v_repeated bool[];
begin
  if p_types && '{RunApproved,RunStarted,SignalAccepted,SignalRejected,RunPaused,RunResumed,RunCompleted,RunFailed,RunCancelled}' then
    raise exception 'append_events: Run and Signal events are appended by the functions that decide them, and by nobody else' using errcode = 'DDARG';
  end if;
  if current_setting('transaction_isolation') = 'read committed' then
    if array_dims(p_runs) = '[1:1]' and array_dims(p_types) = '[1:1]' and array_dims(p_steps) = '[1:1]' and array_dims(p_attempts) = '[1:1]'
      and (p_engine_attempts is null or array_dims(p_engine_attempts) = '[1:1]') and (p_emitted_at is null or array_dims(p_emitted_at) = '[1:1]')
      and (p_data is null or array_dims(p_data) = '[1:1]') and (p_signals is null or array_dims(p_signals) = '[1:1]') and (p_parents is null or array_dims(p_parents) = '[1:1]')
    then
      select e.run_seq, e.event_id into run_seq, event_id
      from deed.write_event(p_runs[1], p_types[1], p_steps[1], p_attempts[1], p_engine_attempts[1], p_emitted_at[1], p_data[1], p_signals[1], p_parents[1], p_adapter) e;
      if run_seq is not null then
        if (select r.done is not null from deed.runs r where r.run_id = p_runs[1]) then -- begun by a plan
          perform deed.refuse_engines_steps(p_runs, p_steps, '{f}');
        end if;
        ordinal := 1;
        repeated := false;
        return next;
        return;
      end if;
    end if;
    select array_agg(w.run_seq), array_agg(w.event_id), array_agg(w.repeated) into v_seqs, v_ids, v_repeated
    from deed.write_events(p_runs, p_types, p_steps, p_attempts, p_engine_attempts, p_emitted_at, p_data, p_signals, p_parents, p_adapter) w;
  else
    -- A lock on a run does not tell what was appended since the snapshot; the keys do.
    begin
      select array_agg(w.run_seq), array_agg(w.event_id), array_agg(w.repeated) into v_seqs, v_ids, v_repeated
      from deed.write_events(p_runs, p_types, p_steps, p_attempts, p_engine_attempts, p_emitted_at, p_data, p_signals, p_parents, p_adapter) w;
    exception when unique_violation then
      raise exception 'append_events: events were appended to a run since the transaction''s snapshot' using errcode = '40001';
    end;
  end if;
  perform deed.refuse_engines_steps(p_runs, p_steps, v_repeated);
  return query select u.n::int, u.run_seq, u.event_id, u.repeated from unnest(v_seqs, v_ids, v_repeated) with ordinality u(run_seq, event_id, repeated, n);
end
$$;
