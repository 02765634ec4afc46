package cni

import (
	"context"
	"sync"
	"time"
)

// Times of the loop.
const (
	// quiet is how long to wait for further changes after a change. Each further change prolongs
	// the wait, up to most.
	quiet = 100 * time.Millisecond
	most  = time.Second
	// again is the pause before STATUS of plugins that are not ready is called again,
	// and before directories that cannot be watched are read again.
	again = 30 * time.Second
)

// loop decides when to read the configurations and when to call STATUS. It waits only on its
// channels. Its function fields read the configurations and call STATUS.
type loop struct {
	events <-chan struct{} // something may have changed in a directory
	failed <-chan struct{} // an ADD failed
	load   func(context.Context) loaded
	ask    func(context.Context) (again bool) // for the status
}

// loaded says what the loop does after a load.
type loaded struct {
	ask   bool // STATUS has to be called
	again bool // the directories have to be read again after a pause
}

// run returns when ctx has ended and the calls it started have returned.
func (l loop) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	var (
		loads           = make(chan loaded, 1)
		asked           = make(chan bool, 1)
		loading, asking bool
		reload, reask   bool // after the running call
		loadAgain       bool // after a pause
		askAgain        bool
		first           time.Time // time of the first change that waits to be read
	)
	settled, retry := stopped(), stopped()
	defer settled.Stop()
	defer retry.Stop()
	load := func() {
		if reload = loading; !loading {
			loading = true
			wg.Go(func() { loads <- l.load(ctx) })
		}
	}
	ask := func() {
		if reask = asking; !asking {
			asking = true
			wg.Go(func() { asked <- l.ask(ctx) })
		}
	}
	later := func() {
		retry.Stop()
		if !loading && !asking && (loadAgain || askAgain) {
			retry.Reset(again)
		}
	}
	load()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.events:
			now := time.Now()
			if first.IsZero() {
				first = now
			}
			settled.Reset(min(quiet, max(0, first.Add(most).Sub(now))))
		case <-settled.C:
			first = time.Time{}
			load()
		case <-l.failed:
			ask()
		case r := <-loads:
			loading, loadAgain, askAgain = false, r.again, false
			if r.ask {
				ask()
			}
			if reload {
				load()
			}
			later()
		case askAgain = <-asked:
			asking = false
			if reask {
				ask()
			}
			later()
		case <-retry.C:
			if loadAgain {
				load() // which decides about STATUS
			} else {
				ask()
			}
		}
	}
}

// stopped returns a timer that does not run.
func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
