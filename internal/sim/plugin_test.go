package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/devicemgr"
)

// device is the resource of which the machine has deviceCount.
const (
	device      = "example.com/thing"
	deviceCount = 4
)

// plugin is a device plugin that outlives the agents.
type plugin struct {
	m *machine

	mu   sync.Mutex
	down bool
	died chan struct{} // closed when it goes down
}

func newPlugin(m *machine) *plugin { return &plugin{m: m, died: make(chan struct{})} }

// come registers the plugin with a life of the agent, unless it is down.
func (p *plugin) come(l *life) {
	p.mu.Lock()
	down, died := p.down, p.died
	p.mu.Unlock()
	if down || l.isDead() {
		return
	}
	for pause := 10 * time.Millisecond; l.offers.devices(l.ctx, device, session{p, l, died}) != nil; pause = min(2*pause, time.Minute) {
		// Its manager does not run yet, or cannot reach its disk.
		select {
		case <-l.ctx.Done():
			return
		case <-died:
			return
		case <-time.After(pause):
		}
	}
}

func (p *plugin) set(down bool) {
	p.mu.Lock()
	if p.down == down {
		p.mu.Unlock()
		return
	}
	p.down = down
	if down {
		close(p.died)
	} else {
		p.died = make(chan struct{})
	}
	p.mu.Unlock()
	p.m.mu.Lock()
	l := p.m.live
	p.m.mu.Unlock()
	if !down && l != nil {
		go func() {
			if l.ready() {
				p.come(l)
			}
		}()
	}
}

// session is a plugin in its registration with one life.
type session struct {
	p    *plugin
	l    *life
	died chan struct{}
}

var errPlugin = errors.New("sim: the plugin is away")

func (s session) alive() error {
	select {
	case <-s.died:
		return errPlugin
	default:
		return nil
	}
}

func (s session) Options(context.Context) (devicemgr.Options, error) {
	return devicemgr.Options{}, s.alive()
}

func (s session) Watch(ctx context.Context, list func([]devicemgr.Device)) error {
	var all []devicemgr.Device
	for i := range deviceCount {
		all = append(all, devicemgr.Device{ID: fmt.Sprintf("d%d", i), Healthy: true})
	}
	list(all)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.died:
		return errPlugin
	}
}

func (s session) Prefer(context.Context, []string, []string, int) ([]string, error) {
	return nil, s.alive()
}

func (s session) Allocate(_ context.Context, ids []string) (devicemgr.Attachment, error) {
	if err := s.l.effect("Allocate", strings.Join(ids, ",")); err != nil {
		return devicemgr.Attachment{}, err
	}
	return devicemgr.Attachment{Env: []v1.EnvVar{{Name: "DEVICES", Value: strings.Join(ids, ",")}}}, s.alive()
}

func (s session) PreStart(context.Context, []string) error { return s.alive() }
func (s session) Close() error                             { return nil }
