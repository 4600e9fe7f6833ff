-- breaking: no
-- Which bounce it is, of the gravest kind that was said, and since when: somebody who is not
-- there is another matter than a full mailbox. reason and code are that one's. Null of bounces
-- that were recorded before. 0134 looks at what there is: the lock that this takes nobody can
-- read beside.
alter table deed.delivery_feedback
  add column bounce       text,
  add column bounce_since timestamptz,
  add constraint delivery_feedback_bounce_is_whole
    check (bounce in ('hard', 'dropped', 'soft') and bounce_since is not null and bounced_at is not null or num_nonnulls(bounce, bounce_since) = 0) not valid;
