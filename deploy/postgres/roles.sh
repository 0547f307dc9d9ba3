#!/bin/sh
# Creates the database roles once, when the volume of the server is empty (/docker-entrypoint-initdb.d).
#
#   ingest_owner   owns the schema; used by `ingest migrate` only
#   ingest         used by workers and commands; `ingest migrate --runtime-role ingest` grants its rights
#   ingest_api     used by the HTTP API; `ingest migrate --api-role ingest_api` grants its rights
set -eu

secrets=${SECRETS:-/run/secrets}

sql() {
	"$@" psql --set ON_ERROR_STOP=1 --no-psqlrc --quiet --username "$POSTGRES_USER" --dbname "$POSTGRES_DB"
}

sql env <<'SQL'
CREATE ROLE ingest_owner LOGIN;
CREATE ROLE ingest LOGIN;
CREATE ROLE ingest_api LOGIN;

-- No other role can connect, and only the owner can create objects.
REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"DBNAME" TO ingest_owner, ingest, ingest_api;
ALTER SCHEMA public OWNER TO ingest_owner;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
SQL

# \password sends a hash, so a server that logs statements logs no password. It reads the password twice from the terminal, or
# without a terminal (setsid) from the following lines.
set_password() {
	password=$(cat "$secrets/$2")
	printf '\\password %s\n%s\n%s\n' "$1" "$password" "$password" | sql setsid >/dev/null 2>&1 ||
		{ echo "roles.sh: the password of $1 could not be set" >&2; exit 1; }
}

set_password ingest_owner postgres_owner_password
set_password ingest postgres_password
set_password ingest_api postgres_api_password
