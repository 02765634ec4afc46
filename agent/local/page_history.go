package local

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	sampleEvery = 10 * time.Second
	maxSamples  = int(time.Hour / sampleEvery)
)

// sample is what the node used at a time.
type sample struct {
	at            time.Time
	cores, memory float64 // cores, and bytes of the working set; below 0 is not known
}

// history is the last hour.
type history struct {
	mu      sync.Mutex
	samples []sample // oldest first
}

func (h *history) add(s sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.samples) == maxSamples {
		copy(h.samples, h.samples[1:])
		h.samples = h.samples[:maxSamples-1]
	}
	h.samples = append(h.samples, s)
}

func (h *history) list() []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]sample(nil), h.samples...)
}

// Run measures the node until ctx ends, and returns nil then. Without it pages have no
// figures of the past.
func (p *Page) Run(ctx context.Context) error {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	said := ""
	for {
		s, err := p.measure(ctx)
		switch {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			p.cfg.Log.Warn("failed to measure the node", zap.Error(err))
		}
		p.history.add(s)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *Page) measure(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	s := sample{at: time.Now(), cores: -1, memory: -1}
	summary, err := p.cfg.Agent.Summary(ctx, true)
	if err != nil {
		return s, err
	}
	if c := summary.Node.CPU; c != nil && c.UsageNanoCores != nil {
		s.cores = float64(*c.UsageNanoCores) / 1e9
	}
	if m := summary.Node.Memory; m != nil && m.WorkingSetBytes != nil {
		s.memory = float64(*m.WorkingSetBytes)
	}
	return s, nil
}
