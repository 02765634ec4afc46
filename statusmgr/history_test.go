package statusmgr

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

var update = flag.Bool("update", false, "rewrite the answers of the histories in testdata")

// TestHistories plays the histories in testdata: blocks of commands, each with
// its answer below a line of dashes. The answer lists the effects of every
// command, and the states that are different after the block.
func TestHistories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			was, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			is := newHistory(t).play(string(was))
			switch {
			case is == string(was):
			case *update:
				if err := os.WriteFile(file, []byte(is), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("different answers; -update writes them to the file:\n%s", is)
			}
		})
	}
}

// history drives steps as the Manager does, with the Manager's queue but
// without its sink, clock and goroutines.
type history struct {
	t       *testing.T
	now     time.Time
	start   bool
	serial  uint64
	entries map[string]*player
	players map[*entry]*player // removed ones too
	busy    map[string]*player // by name: writes under way
	queue   publishQueue
	delays  *retry.Backoff
	out     strings.Builder
}

// player is a pod in a history.
type player struct {
	*entry
	name    string
	status  string
	request bool // the deletion was requested
	due     time.Time
	since   time.Time // of the write under way
	class   class
}

func newHistory(t *testing.T) *history {
	return &history{
		t: t, now: time.Unix(0, 0), start: true, entries: map[string]*player{}, busy: map[string]*player{}, players: map[*entry]*player{},
		queue: newPublishQueue(2), delays: &retry.Backoff{First: time.Second, Max: time.Minute},
	}
}

func (h *history) play(text string) string {
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(block, "\n----")
		before := h.states()
		for line := range strings.Lines(commands) {
			if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "#" {
				h.command(fields)
			}
		}
		after := h.states()
		for _, name := range slices.Sorted(maps.Keys(after)) {
			if before[name] != after[name] {
				fmt.Fprintf(&h.out, "%s = %s\n", name, after[name])
			}
		}
		if h.out.Len() == 0 {
			h.out.WriteString("nothing\n")
		}
		out = append(out, commands+"\n----\n"+strings.TrimSuffix(h.out.String(), "\n"))
		h.out.Reset()
	}
	return strings.Join(out, "\n\n") + "\n"
}

func (h *history) states() map[string]string {
	out := map[string]string{}
	for name, p := range h.entries {
		out[name] = describe(&p.state)
	}
	return out
}

// command plays one line: a verb, a pod, and words.
func (h *history) command(words []string) {
	verb, name := words[0], ""
	if len(words) > 1 {
		name = words[1]
	}
	has := func(word string) bool { return slices.Contains(words[min(2, len(words)):], word) }
	p := h.entries[name]
	switch verb {
	case "slots":
		n, err := strconv.Atoi(name)
		h.check(err)
		h.queue = newPublishQueue(n)
	case "before-run":
		h.start = false
	case "run":
		h.start = true
		for _, name := range slices.Sorted(maps.Keys(h.entries)) {
			h.step(h.entries[name], input{event: onStart})
		}
	case "tick":
		d, err := time.ParseDuration(name)
		h.check(err)
		h.tick(d)
	case "set":
		h.set(name, words[2])
	case "restore":
		p = h.add(name)
		p.status, p.finished, p.request = words[2], has("finished"), has("deletion-requested")
		h.serial++
		h.step(p, p.with(input{event: onRestore, version: h.serial, unsent: has("unsent"), loaded: has("loaded")}))
	case "terminate":
		p.finished = true
		h.set(name, "failed/terminated")
	case "request-deletion":
		p.request = true
		h.step(p, p.with(input{event: onRefresh}))
	case "reconcile":
		e := onRefresh
		if has("changed") && p.comparable() {
			e = onDrift
		}
		h.step(p, p.with(input{event: e}))
	case "slow":
		h.step(p, input{event: onSlow})
	case "republish":
		h.step(p, input{event: onRepublish, replaced: has("replaced")})
	case "remove":
		h.step(p, input{event: onRemove})
		delete(h.entries, name)
	default:
		h.result(verb, name, has)
	}
}

// result plays a result of the write of a pod that is under way.
func (h *history) result(verb, name string, has func(string) bool) {
	p := h.busy[name]
	if p == nil {
		h.t.Fatalf("%s %s: no write is under way", verb, name)
	}
	in := input{withheld: has("withheld"), mirrored: has("mirror")}
	switch verb {
	case "wrote":
		in.event = onWrote
	case "up-to-date":
		in.event = onUpToDate
	case "gone":
		in.event = onGone
	case "failed":
		in.event = onUpdateFailed
	case "no-object":
		in.event = onNoTarget
	case "deleted":
		in.event = onDeleted
	case "deletion-failed":
		in.event = onDeleteFailed
	default:
		h.t.Fatalf("unknown command %s", verb)
	}
	do := p.step(in, h.delays)
	if !do.deletePod {
		h.queue.end(p.entry, p.class)
		delete(h.busy, name)
	}
	h.carryOut(p, do)
	if next := h.entries[name]; !do.deletePod && next != nil && next != p {
		h.step(next, input{event: onRelease})
	}
	h.dispatch()
}

func (h *history) check(err error) {
	if err != nil {
		h.t.Fatal(err)
	}
}
