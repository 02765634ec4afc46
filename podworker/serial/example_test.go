package serial_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodewright/nodewright/podworker/serial"
)

// start runs a Manager until stop is called.
func start[K comparable, U any](cfg serial.Config[K, U]) (m *serial.Manager[K, U], stop func()) {
	m, err := serial.New(cfg)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx) // nil, for it is called once
	}()
	return m, func() {
		cancel()
		<-ended
	}
}

// A lease is renewed until it is given back.
func Example() {
	type lease struct {
		want bool
		done chan struct{}
	}
	m, stop := start(serial.Config[string, lease]{
		Handle: func(_ context.Context, c *serial.Call[string, lease]) (serial.Next, error) {
			defer close(c.Update.done)
			if !c.Update.want {
				fmt.Println("give back", c.Key)
				return serial.Done(), nil
			}
			fmt.Println("take", c.Key)
			return serial.Again(time.Minute, "renewal"), nil
		},
	})
	defer stop()

	taken, gone := make(chan struct{}), make(chan struct{})
	m.Update("10.0.0.7", lease{want: true, done: taken})
	<-taken
	m.Update("10.0.0.7", lease{want: false, done: gone})
	<-gone
	// Output:
	// take 10.0.0.7
	// give back 10.0.0.7
}

// A handler that fails is called again with the same update.
func ExampleConfig_onError() {
	ready := make(chan struct{})
	m, stop := start(serial.Config[string, string]{
		Backoff: serial.Backoff{First: time.Millisecond},
		Handle: func(_ context.Context, c *serial.Call[string, string]) (serial.Next, error) {
			switch c.Failures {
			case 0:
				return serial.Rest(), errors.New("no route")
			case 1:
				panic("bad table")
			}
			fmt.Println(c.Key, c.Update)
			close(ready)
			return serial.Rest(), nil
		},
		OnError: func(key string, err error, failures int, retry time.Duration) {
			fmt.Printf("%s: %v, failure %d, again in %v\n", key, err, failures, retry)
		},
	})
	defer stop()

	m.Update("eth0", "up")
	<-ready
	// Output:
	// eth0: no route, failure 1, again in 1ms
	// eth0: panic: bad table, failure 2, again in 2ms
	// eth0 up
}

// Stages lead a key through its life without a word from outside.
func ExampleEnter() {
	const (
		fetch serial.Stage = iota
		install
	)
	finished := make(chan struct{})
	m, stop := start(serial.Config[string, int]{
		Handle: func(_ context.Context, c *serial.Call[string, int]) (serial.Next, error) {
			if c.Stage == fetch {
				fmt.Println("fetch", c.Key, c.Update)
				return serial.Enter(install), nil
			}
			fmt.Println("install", c.Key, c.Update)
			return serial.Done().Then(func() { close(finished) }), nil
		},
	})
	defer stop()

	m.Update("firmware", 7)
	<-finished
	fmt.Println("left:", len(m.List()))
	// Output:
	// fetch firmware 7
	// install firmware 7
	// left: 0
}
