#!/usr/bin/env bash
# A worker in shell and psql: claims a subscription's messages and runs a command for each, with the content as its input.
#
#   PGHOST=… PGDATABASE=shop PGUSER=my_worker worker.sh TOPIC SUBSCRIPTION COMMAND [ARG…]
#
# Exit status 0 of the command means delivered; any other: try it again later, with the last line of its standard error
# kept. It also gets MESSAGE_ID, MESSAGE_TOPIC and MESSAGE_KEY. Needs a login with the role deed_worker. With
# UNTIL_EMPTY=1 the worker ends when there is nothing to claim. The protocol: docs/protocol.md.
set -euo pipefail
topic=$1 subscription=$2
shift 2
worker=shell:$$
lease='2 minutes'
batch=10
errors=$(mktemp)
stop=
trap 'rm -f "$errors"' EXIT
trap 'stop=1' INT TERM

# sql runs the statement on its standard input; values are given as -v name=value and quoted by psql as :'name'. The
# deadline belongs to the transaction, as a pooler wants it.
sql() {
	{ echo "begin; set local statement_timeout = '10s';" && cat && echo "commit;"; } |
		psql -X -q -A -t -F ' ' -v ON_ERROR_STOP=1 -v VERBOSITY=verbose "$@"
}

claim() {
	sql -v topic="$topic" -v subscription="$subscription" -v worker="$worker" -v batch="$batch" -v lease="$lease" <<-'SQL'
		select subscription, claim, id, message_id, topic, translate(encode(convert_to(coalesce(key, ''), 'UTF8'), 'base64') || '.', E'\n', ''),
		  translate(encode(payload, 'base64'), E'\n', '')
		from deed.claim(:'topic', :'worker', :batch, :'subscription', p_lease => :'lease');
	SQL
}

# extend says whether the message is still ours, and renews its lease.
extend() {
	sql -v number="$number" -v claim="$claim" -v id="$id" -v lease="$lease" <<-'SQL'
		select cardinality(deed.extend(:number, :claim, array[:id], :'lease'));
	SQL
}

finish() {
	sql -v number="$number" -v claim="$claim" -v id="$id" <<-'SQL'
		select deed.finish(:number, :claim, array[:id]);
	SQL
}

fail() {
	sql -v number="$number" -v claim="$claim" -v id="$id" -v error="$1" <<-'SQL'
		select dead from deed.fail(:number, :claim, array[:id], array[:'error']);
	SQL
}

# record runs finish or fail. What somebody keeps locked (55P03) is tried again, and then left to its lease.
record() {
	local pause
	for pause in 0.3 1 ''; do
		if "$@" >/dev/null 2>"$errors"; then
			return
		elif ! grep -q 'ERROR:  55P03' "$errors"; then
			cat "$errors" >&2
			return 1
		fi
		[ -z "$pause" ] || sleep "$pause"
	done
	echo "locked by somebody, left until the lease is over: $id" >&2
}

while [ -z "$stop" ]; do
	claimed=$(claim) || [ -n "$stop" ] || exit 1 # a database that is away is no empty queue
	rows=()
	[ -z "$claimed" ] || mapfile -t rows <<<"$claimed"
	if [ ${#rows[@]} -eq 0 ]; then
		[ -z "${UNTIL_EMPTY:-}" ] || break
		sleep 0.5
		continue
	fi
	for row in "${rows[@]}"; do
		[ -z "$stop" ] || break # what is left comes back when the lease is over
		read -r number claim id message_id message_topic key payload <<<"$row"
		[ "$(extend)" = 1 ] || continue # another worker has it by now
		if base64 -d <<<"${payload:-}" | MESSAGE_ID=$message_id MESSAGE_TOPIC=$message_topic MESSAGE_KEY=$(base64 -d <<<"${key%.}") "$@" 2>"$errors"; then
			record finish
		else
			record fail "$(tail -n 1 "$errors")"
		fi
	done
done
