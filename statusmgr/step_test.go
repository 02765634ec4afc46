package statusmgr

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

// TestStatesStayConsistent takes random steps, and checks after each what
// holds for every state.
func TestStatesStayConsistent(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		flip := func() bool { return rnd.IntN(2) == 0 }
		s, armed := state{stage: idle}, false
		var trace []string
		for version := uint64(1); version < 200; version++ {
			in := input{
				event: event(rnd.IntN(int(onDeleteFailed) + 1)), final: flip(), deletion: flip(), urgent: flip(),
				replaced: flip(), withheld: flip(), mirrored: flip(), version: version, now: time.Unix(int64(version), 0),
			}
			if in.event >= onNoTarget && !s.busy() || in.event == onRestore || in.event == onDrift && !s.comparable() || in.event == onRemove && rnd.IntN(20) > 0 ||
				in.event == onTimer && !armed {
				continue // which cannot be
			}
			was := s
			do := s.step(in, &retry.Backoff{First: time.Second, Max: time.Minute})
			armed = (armed && !do.disarm && in.event != onTimer) || do.retry > 0
			trace = append(trace, fmt.Sprintf("%+v: %s", in, describe(&s)))
			for _, rule := range []struct {
				broken bool
				name   string
			}{
				{s.stage == idle && s.pending(), "idle with something to publish"},
				{armed != (s.stage == backingOff), "timer"},
				{do.queue != none && s.stage != queued, "queued in another stage"},
				{do.queue == none && s.stage == queued && was.stage != queued, "not queued"},
				{do.begin != (!was.busy() && s.busy()), "write"},
				{do.deletePod && (!s.busy() || s.mirrored || s.deleted || s.sink == gone), "deletion"},
				{was.busy() && in.event >= onNoTarget && do.deletePod != s.busy() && s.stage != removed, "end of the write"},
				{s.published > s.version || s.writing > s.version, "versions"},
				{s.news() && s.since.IsZero() && s.writingSince.IsZero() && was.published == s.published && !was.news(), "time of a change lost"},
				{s.slow && !s.busy() && s.stage != removed, "slow without a write"},
			} {
				if rule.broken {
					t.Fatalf("seed %d: %s, after %s and effects %+v:\n%s", seed, rule.name, describe(&was), do, strings.Join(trace, "\n"))
				}
			}
			if s.stage == removed && !was.busy() {
				s, armed = state{stage: idle}, false
			}
		}
	}
}
