package network

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/detached"
)

// statusTimeout is for Plugin.Status, which does not wait.
const statusTimeout = 10 * time.Second

// mayHaveChanged has a plugin's Status asked soon.
func (n *Network) mayHaveChanged(p *plugged) {
	select {
	case p.refresh <- struct{}{}:
	default: // it will be
	}
}

// watchStatus asks whenever Status may have changed.
func (n *Network) watchStatus(p *plugged) {
	for {
		select {
		case <-p.refresh:
			_ = n.askStatus(p)
		case <-n.run.Done():
			return
		}
	}
}

// askStatus asks the plugin of new attachments for its status, keeps it and
// returns it. However often it is called, a Status that hangs hangs once.
func (n *Network) askStatus(p *plugged) error {
	ctx, cancel := context.WithTimeout(n.run, statusTimeout)
	defer cancel()
	begin := time.Now()
	_, err := n.statuses.Do(ctx, p.name, func() (struct{}, error) { return struct{}{}, p.Status() })
	if errors.Is(err, context.Canceled) && n.run.Err() != nil {
		return errStopped
	}
	n.cfg.Observer.Observe(OpStatus, time.Since(begin), CodeOf(err))
	if err != nil {
		err = Errorf(Unavailable, "%s: %w", p.who(), bounded(err))
	}
	n.setReady(err)
	return err
}

type statusCalls = detached.Group[struct{}]

// setReady keeps a status, and logs it if it is another one.
func (n *Network) setReady(err error) {
	old := n.ready.Swap(&readiness{err}).err
	switch {
	case err == nil && old != nil:
		n.cfg.Log.Info("network is ready")
	case err != nil && (old == nil || old.Error() != err.Error()):
		n.cfg.Log.Warn("network is not ready", zap.Error(err))
	}
}
