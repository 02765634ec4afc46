package network

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/detached"
)

// statusTimeout limits a call of Plugin.Status, which should return at once.
const statusTimeout = 10 * time.Second

// mayHaveChanged requests a call of the plugin's Status.
func (n *Network) mayHaveChanged(p *plugged) {
	p.refresh.Set()
}

// watchStatus calls Status whenever its result may have changed.
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

// askStatus calls Status of the plugin for new attachments, stores the result and returns it. While
// a call of Status hangs, no other one is made.
func (n *Network) askStatus(p *plugged) error {
	ctx, cancel := context.WithTimeout(n.run, statusTimeout)
	defer cancel()
	_, err := n.statuses.Do(ctx, p.name, func() (struct{}, error) { return struct{}{}, p.Status() })
	if errors.Is(err, context.Canceled) && n.run.Err() != nil {
		return errStopped
	}
	if err != nil {
		err = Errorf(Unavailable, "%s: %w", p.who(), callerror.Brief(err, maxText))
	}
	n.setReady(err)
	return err
}

type statusCalls = detached.Group[struct{}]

// setReady stores a status, and logs it if it has changed.
func (n *Network) setReady(err error) {
	old := n.ready.Swap(&readiness{err}).err
	switch {
	case errors.Is(err, errStopped): // the end of Run is not an error
	case err == nil && old != nil:
		n.cfg.Log.Info("network is ready")
	case err != nil && (old == nil || old.Error() != err.Error()):
		n.cfg.Log.Warn("network is not ready", zap.Error(err))
	}
}
