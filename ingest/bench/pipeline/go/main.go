// Command bare is the bare loop in Go, which is the least code that does the service's work, without any safety.
//
// Like ingest/bench/pipeline/bare.py, it reads through a consumer group, fetches, decodes the same document, stores batches
// in the same table, acks and deletes. It does not support retries, leases, reclaims, dead letters, versions, limits or
// metrics, does not wait for servers, and ends at the first error.
//
//	bare STREAM_KEY IN_FLIGHT
//
// It reads INGEST_REDIS_URL, INGEST_POSTGRES_DSN, INGEST_UPSTREAM_URL and, for HTTPS, INGEST_UPSTREAM_CA_FILE from the
// environment. BENCH_UPSERT contains the statement that stores a batch, and BENCH_JSON can select "go-json" instead of
// encoding/json.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) != 3 {
		return errors.New("usage: bare STREAM_KEY IN_FLIGHT")
	}
	inFlight, err := strconv.Atoi(os.Args[2])
	if err != nil || inFlight < 1 {
		return fmt.Errorf("IN_FLIGHT is %q, not a number above 0", os.Args[2])
	}
	api, err := newAPI(os.Getenv("INGEST_UPSTREAM_URL"), os.Getenv("INGEST_UPSTREAM_CA_FILE"), inFlight)
	if err != nil {
		return err
	}
	queue, err := newQueue(ctx, os.Getenv("INGEST_REDIS_URL"), os.Args[1])
	if err != nil {
		return err
	}
	defer queue.close()
	store, err := newStore(ctx, os.Getenv("INGEST_POSTGRES_DSN"), os.Getenv("BENCH_UPSERT"))
	if err != nil {
		return err
	}
	defer store.close()
	return work(ctx, queue, api, store, inFlight)
}

// work runs until the context ends or a step fails. One goroutine reads, inFlight of them fetch, one stores and acks.
func work(ctx context.Context, queue *queue, api *api, store *store, inFlight int) error {
	entries := make(chan entry, mostAtOnce)
	fetched := newGathered()
	failed := make(chan error, inFlight+2)
	go func() { failed <- queue.read(ctx, entries) }()
	for range inFlight {
		go func() { failed <- fetch(ctx, api, entries, fetched) }()
	}
	go func() { failed <- storeAll(ctx, fetched, store, queue) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetch is one of the goroutines that each have one order in flight.
func fetch(ctx context.Context, api *api, entries <-chan entry, fetched *gathered) error {
	for {
		select {
		case next := <-entries:
			row, err := api.fetch(ctx, next)
			if err != nil {
				return err
			}
			fetched.add(row)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// storeAll stores in batches. Orders that are fetched while a batch is being stored form the next batch.
func storeAll(ctx context.Context, fetched *gathered, store *store, queue *queue) error {
	for {
		rows, err := fetched.take(ctx)
		if err != nil {
			return err
		}
		if len(rows) == 0 { // the last batch contained them already
			continue
		}
		if err := store.upsert(ctx, rows); err != nil {
			return err
		}
		if err := queue.ack(ctx, rows); err != nil {
			return err
		}
	}
}
