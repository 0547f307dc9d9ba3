#!/bin/sh
# Becomes the server; on an empty volume, it first makes the cluster, the database, and what /docker-entrypoint-initdb.d asks for.
# Until that is done, the server listens on its socket only.
set -eu

initialise() {
  # Word by word: POSTGRES_INITDB_ARGS is a list.
  # shellcheck disable=SC2086
  initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" ${POSTGRES_INITDB_ARGS:-}
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  pg_ctl --wait --options="-c listen_addresses=''" start
  createdb --username="$POSTGRES_USER" --maintenance-db=postgres "$POSTGRES_DB"
  for script in /docker-entrypoint-initdb.d/*; do
    case $script in
      *.sh) "$script" ;;
      *.sql) psql --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" --file="$script" ;;
    esac
  done
  pg_ctl --wait --mode=fast stop
}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initialise
fi
exec "$@" -c listen_addresses='*'
