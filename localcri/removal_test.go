//go:build linux

package localcri

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/localcri/internal/life"
)

// rounds is how many containers TestNothingRunsOfWhatIsRemovedAtOnce makes.
var rounds = flag.Int("rounds", 200, "how many containers are started, stopped, ended and removed at once")

// alive counts the processes of containers.
func (b *bench) alive() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, pid := range b.executed {
		if b.processes[pid] != nil {
			n++
		}
	}
	return n
}

// refusals counts the steps that were refused, by event.
func (b *bench) refusals() map[string]int {
	b.t.Helper()
	out := map[string]int{}
	ch := make(chan prometheus.Metric, 1000)
	b.rt.refusals.Collect(ch)
	close(ch)
	for m := range ch {
		var d dto.Metric
		if err := m.Write(&d); err != nil {
			b.t.Fatal(err)
		}
		for _, l := range d.GetLabel() {
			if l.GetName() == "event" {
				out[l.GetValue()] += int(d.GetCounter().GetValue())
			}
		}
	}
	return out
}

// A container that is removed while it is started runs for nobody: no further start
// joins, and it is killed as soon as it has begun.
func TestRemovalDuringAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.container(b.sandbox("p"), "c")
		release := b.hold("start")
		started, removed := make(chan error, 1), make(chan error, 1)
		go func() { started <- b.rt.StartContainer(t.Context(), id) }()
		synctest.Wait()
		go func() { removed <- b.rt.RemoveContainer(t.Context(), id) }()
		synctest.Wait()
		err := b.rt.StartContainer(t.Context(), id)
		wantCode(t, "a start during the removal", err, codes.FailedPrecondition)
		if err == nil || !strings.Contains(err.Error(), "is being removed") {
			t.Errorf("error %v", err)
		}
		release()
		if err := <-removed; err != nil {
			t.Error(err)
		}
		<-started // it began, or was overtaken
		synctest.Wait()
		if n := b.alive(); n > 0 {
			t.Errorf("%d processes of a removed container are alive", n)
		}
		wantCode(t, "a start after the removal", b.rt.StartContainer(t.Context(), id), codes.NotFound)
		b.kill()
	})
}

// Nothing starts of a container after its stop has been answered.
func TestStartAfterAStop(t *testing.T) {
	b := newBench(t)
	id := b.container(b.sandbox("p"), "c")
	if err := b.rt.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	err := b.rt.StartContainer(t.Context(), id)
	wantCode(t, "a start after the stop", err, codes.FailedPrecondition)
	if err == nil || !strings.Contains(err.Error(), "was stopped before it was started") {
		t.Errorf("error %v", err)
	}
	if n := b.alive(); n > 0 {
		t.Errorf("%d processes of a stopped container are alive", n)
	}
}

// A stop that comes during a start ends what begins, also for a caller that has gone.
func TestStopDuringAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.container(b.sandbox("p"), "c")
		release := b.hold("start")
		go func() { _ = b.rt.StartContainer(t.Context(), id) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantCode(t, "a short stop", b.rt.StopContainer(ctx, id, 0), codes.DeadlineExceeded)
		release()
		synctest.Wait()
		if st := b.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 137 {
			t.Errorf("status %v", st)
		}
		b.kill()
	})
}

// A removal that could not kill is not asked for twice: the container goes when its
// process has ended.
func TestEndAfterARemovalThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		sb := b.sandbox("p")
		id := b.running(sb, "c")
		state := func(s string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.processes[b.executed[id]].state = s
		}
		state("D")
		wantCode(t, "removal", b.rt.RemoveContainer(t.Context(), id), codes.DeadlineExceeded)
		b.end(id, 4)
		synctest.Wait()
		_, err := b.rt.ContainerStatus(t.Context(), id, false)
		wantCode(t, "status", err, codes.NotFound)
		if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
			t.Error(err)
		}
		b.clean()
		b.kill()
	})
}

// What nobody took is not started while it goes.
func TestStartOfWhatIsDiscarded(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	id := b.container(sb, "c")
	c := b.rt.containers[id]
	if err := c.apply(life.Discarded{}); err != nil {
		t.Fatal(err)
	}
	_, err := c.begin()
	wantCode(t, "start", err, codes.NotFound)
	wantCode(t, "start", b.rt.StartContainer(t.Context(), id), codes.NotFound)
	if n := b.alive(); n > 0 {
		t.Errorf("%d processes are alive", n)
	}
}

// A sandbox that is removed while a container is made in it leaves nothing of that.
func TestSandboxIsRemovedWhileAContainerIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		sb := b.sandbox("p")
		release := b.hold("mount")
		made, removed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := b.rt.CreateContainer(t.Context(), sb, containerConfig("c"), nil)
			made <- err
		}()
		synctest.Wait()
		if err := b.rt.StopPodSandbox(t.Context(), sb); err != nil {
			t.Error(err)
		}
		go func() { removed <- b.rt.RemovePodSandbox(t.Context(), sb) }()
		synctest.Wait()
		release()
		wantCode(t, "create", <-made, codes.FailedPrecondition)
		if err := <-removed; err != nil {
			t.Error(err)
		}
		b.clean()
		b.kill()
	})
}

// Whatever is asked of a container at once: when it is removed, none of its processes is
// alive, and no step was refused but starts that came too late.
func TestNothingRunsOfWhatIsRemovedAtOnce(t *testing.T) {
	b := newBench(t)
	const perPod = 50
	for done := 0; done < *rounds; done += perPod {
		sb := b.sandbox(fmt.Sprint("p", done))
		var wg sync.WaitGroup
		for i := range perPod {
			id := b.container(sb, fmt.Sprint("c", i))
			wg.Go(func() { _ = b.rt.StartContainer(t.Context(), id) })
			if i%2 == 0 {
				wg.Go(func() { b.end(id, 1) })
			}
			if i%3 == 0 {
				wg.Go(func() { _ = b.rt.StopContainer(t.Context(), id, 0) })
			}
			wg.Go(func() {
				if err := b.rt.RemoveContainer(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := b.alive(); n > 0 {
			t.Fatalf("%d processes of removed containers are alive", n)
		}
		if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
			t.Fatal(err)
		}
	}
	b.clean()
	refused := b.refusals()
	t.Logf("%d containers, refused steps: %v", *rounds, refused)
	delete(refused, "StartAsked")
	if len(refused) > 0 {
		t.Errorf("steps that cannot be: %v", refused)
	}
}

// Whoever removes a container for the sake of space finds it free.
func TestRemovalReturnsWhenTheFilesAreGone(t *testing.T) {
	b := newBench(t)
	id := b.container(b.sandbox("p"), "c")
	dir := b.rt.rootPath(containersDir, id)
	if err := os.WriteFile(filepath.Join(dir, upperDir, "large"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.rt.RemoveContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v, want it gone", err)
	}
	if owners, err := b.rt.cfg.Images.Owners(t.Context()); err != nil || len(owners) > 0 {
		t.Errorf("its image is used by %v, %v", owners, err)
	}
}
