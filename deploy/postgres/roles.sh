#!/bin/sh
# Creates the database roles when the volume of the server is empty (/docker-entrypoint-initdb.d). Run it again after an
# upgrade or a change of a password. It changes only what differs.
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
SELECT format('CREATE ROLE %I LOGIN', name) FROM unnest(ARRAY['ingest_owner', 'ingest', 'ingest_api']) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec

-- No other role can connect, and only the owner can create objects.
REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"DBNAME" TO ingest_owner, ingest, ingest_api;
ALTER SCHEMA public OWNER TO ingest_owner;
REVOKE ALL ON SCHEMA public FROM PUBLIC;

-- The roles cannot connect to other databases, and cannot create large objects, which no table limits.
SELECT format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', datname) FROM pg_database WHERE has_database_privilege('ingest', oid, 'CONNECT')
    AND datname <> current_database() \gexec
REVOKE EXECUTE ON FUNCTION lo_creat(integer), lo_create(oid), lo_from_bytea(oid, bytea) FROM PUBLIC;
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
