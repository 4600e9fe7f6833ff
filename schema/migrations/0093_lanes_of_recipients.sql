-- breaking: no
-- Lanes that are recipients are under a key of the installation from now on (deed.lane_of): deliveries
-- that are not finished are moved to them, and what was kept under the former names goes. A relay
-- names its limits anew when it starts.
update deed.providers set relane = true where lanes = 'recipient';
delete from deed.lane_tokens where lane ~ '^-?[0-9a-f]{16}$';
delete from deed.rate_limits where lane ~ '^-?[0-9a-f]{16}$';
delete from deed.pauses where destination ~ '^-?[0-9a-f]{16}$';
