package main

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// gathered holds fetched rows that are not being stored yet.
type gathered struct {
	mutex sync.Mutex
	rows  []row
	some  chan struct{}
}

func newGathered() *gathered { return &gathered{some: make(chan struct{}, 1)} }

func (g *gathered) add(fetched row) {
	g.mutex.Lock()
	g.rows = append(g.rows, fetched)
	g.mutex.Unlock()
	select {
	case g.some <- struct{}{}:
	default:
	}
}

// take waits until a row was added, and returns all rows, or none if the last call returned them already.
func (g *gathered) take(ctx context.Context) ([]row, error) {
	select {
	case <-g.some:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	rows := g.rows
	g.rows = make([]row, 0, len(rows))
	return rows, nil
}

type store struct {
	postgres *pgx.Conn
	upserts  string
}

func newStore(ctx context.Context, dsn, upsert string) (*store, error) {
	postgres, err := pgx.Connect(ctx, dsn)
	return &store{postgres, upsert}, err
}

func (s *store) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.postgres.Close(ctx)
}

// upsert stores a batch with one statement, whose arguments are the source and arrays.
func (s *store) upsert(ctx context.Context, rows []row) error {
	_, err := s.postgres.Exec(ctx, s.upserts, arguments(rows)...)
	return err
}

// arguments are the unnamed source, and the columns that ingest/store/orders/columns.py declares as sent, in the same order.
func arguments(rows []row) []any {
	return []any{
		"",
		column(rows, func(of *row) string { return of.order.ID }),
		column(rows, func(of *row) string { return of.order.Status }),
		column(rows, func(of *row) string { return of.order.Currency }),
		column(rows, func(of *row) pgtype.Text { return nullableText(of.order.CustomerID) }),
		column(rows, func(of *row) pgtype.Text { return nullableText(of.order.Country) }),
		column(rows, func(of *row) time.Time { return of.order.PlacedAt }),
		column(rows, func(of *row) pgtype.Timestamptz { return nullableTime(of.order.UpdatedAt) }),
		column(rows, func(of *row) string { return of.total.String() }),
		column(rows, func(of *row) string { return of.lines }),
		column(rows, func(of *row) time.Time { return of.askedAt }),
		column(rows, func(*row) int32 { return 1 }),
		column(rows, func(of *row) float64 { return of.addedAt }),
		column(rows, func(of *row) string { return of.attributes }),
		column(rows, func(*row) pgtype.Text { return pgtype.Text{} }),
	}
}

func column[Value any](rows []row, value func(*row) Value) []Value {
	values := make([]Value, len(rows))
	for index := range rows {
		values[index] = value(&rows[index])
	}
	return values
}

func nullableText(text *string) pgtype.Text {
	if text == nil {
		return pgtype.Text{}
	}
	return pgtype.Text{String: *text, Valid: true}
}

func nullableTime(moment *time.Time) pgtype.Timestamptz {
	if moment == nil {
		return pgtype.Timestamptz{}
	}
	return pgtype.Timestamptz{Time: *moment, Valid: true}
}
