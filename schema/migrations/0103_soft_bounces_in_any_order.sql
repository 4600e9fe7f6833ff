-- breaking: no
-- Soft bounces are by delivery and address, and end alike in whatever order they are heard.

alter table deed.soft_bounces drop constraint soft_bounces_pkey;
alter table deed.soft_bounces add constraint soft_bounces_pkey primary key using index soft_bounces_each_idx;

-- reached: the last that was said of who got a copy is that it was delivered; at is when.
-- Of the recipient that stands in delivery_feedback.
alter table deed.soft_bounces add column reached boolean not null default false;

-- The last delivery that has a time of its own: a mail that is passed on has several. Null:
-- there is none, or it was said before.
alter table deed.delivery_feedback add column last_delivered_at timestamptz;
