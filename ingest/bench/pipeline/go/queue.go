package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	group      = "go"
	consumer   = "go"
	mostAtOnce = 500
)

// An entry is an order that was read from the stream.
type entry struct {
	id      string
	orderID string
}

// addedAt is in Unix seconds. An entry ID begins with the time in ms at which the entry was added.
func (e entry) addedAt() (float64, error) {
	milliseconds, _, _ := strings.Cut(e.id, "-")
	added, err := strconv.ParseInt(milliseconds, 10, 64)
	return float64(added) / 1000, err
}

type queue struct {
	redis  *redis.Client
	stream string
}

func newQueue(ctx context.Context, url, stream string) (*queue, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("INGEST_REDIS_URL cannot be read") // the error itself shows the URL, with its password
	}
	options.PoolSize = 2 // one reads, one acks
	options.DisableIdentity = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(options)
	if err := client.XGroupCreateMkStream(ctx, stream, group, "0").Err(); err != nil {
		return nil, err
	}
	return &queue{client, stream}, nil
}

func (q *queue) close() { _ = q.redis.Close() }

// read fills the channel. It reads the next entries while the last ones wait in it, so that reads are large.
func (q *queue) read(ctx context.Context, entries chan<- entry) error {
	arguments := &redis.XReadGroupArgs{
		Group: group, Consumer: consumer, Streams: []string{q.stream, ">"}, Count: mostAtOnce, Block: time.Second,
	}
	for {
		streams, err := q.redis.XReadGroup(ctx, arguments).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return err
		}
		for _, message := range streams[0].Messages {
			orderID, ok := message.Values["order_id"].(string)
			if !ok {
				return fmt.Errorf("entry %s has no order_id", message.ID)
			}
			select {
			case entries <- entry{message.ID, orderID}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// ack acknowledges and deletes stored entries.
func (q *queue) ack(ctx context.Context, rows []row) error {
	ids := make([]string, len(rows))
	for index := range rows {
		ids[index] = rows[index].entryID
	}
	_, err := q.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.XAck(ctx, q.stream, group, ids...)
		pipe.XDel(ctx, q.stream, ids...)
		return nil
	})
	return err
}
