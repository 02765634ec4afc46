package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/bootid"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podspec"
)

// Pods that are only remembered. While the API server does not answer, an agent that begins
// runs the pods that the disk has of it. A disk that fails or hangs may have one that came to
// its end meanwhile, and was removed from the runtime; run again, a Job's work would be done
// twice. So a pod that the runtime has nothing of waits for the server, if the server has
// answered an agent since the machine booted. A node that comes up without a network runs
// all its pods.

// bootKey names the record of the boot in which the API server answered an agent last.
const bootKey = "boot"

// boots is the record of the boot in which the API server answered last.
type boots struct {
	store *checkpoint.Lazy
	id    string // of this boot; "" if that cannot be read
	same  bool   // the server has answered an agent in this boot; never changes once the loop runs
}

// learnBoot reads the record. It is called once, before the loop.
func (a *Agent) learnBoot() {
	if a.pods.IsConfirmed() {
		return // there is no API server
	}
	b := &a.boots
	b.store = part.OpenStore(filepath.Join(a.cfg.Paths.Root, "boot"), a.log)
	if b.id = a.cfg.Volumes.BootID; b.id == "" {
		var err error
		if b.id, err = bootid.Read(os.DirFS("/")); err != nil { //nolint:forbidigo // the kernel's
			a.log.Warn("failed to read the boot of the machine", zap.Error(err))
			return
		}
	}
	last, err := b.store.Read(bootKey)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("failed to read the record of the last boot", zap.Error(err))
	}
	b.same = err == nil && string(last) == b.id
}

// recordBoot notes that the server has answered in this boot. It does not wait for the disk.
func (a *Agent) recordBoot(ctx context.Context) {
	if a.boots.same || a.boots.id == "" {
		return
	}
	a.background(ctx, a.writeBoot)
}

// writeBoot tries until it succeeds, or ctx ends.
func (a *Agent) writeBoot(ctx context.Context) {
	back := retry.Backoff{First: housekeepingEvery, Max: 10 * time.Minute}
	for {
		err := a.boots.store.Write(bootKey, []byte(a.boots.id))
		if err == nil {
			return
		}
		a.log.Warn("failed to record the boot of the machine", zap.Error(err))
		if !retry.Sleep(ctx, back.Next()) {
			return
		}
	}
}

// mayHaveEnded reports whether a pod is only remembered, and may have come to its end.
func (a *Agent) mayHaveEnded(pod *v1.Pod) bool {
	return a.boots.same && !podmeta.IsStatic(pod) && a.pods.Want(pod.UID).By < podlife.Confirmed && a.pleg.View(pod.UID).Absent() != observed.No
}

// certainty is how certain the definition of a pod is that its worker has. If it is only
// remembered, what runs may have been made from a newer one, that a failing disk did not
// take. The worker looks again when the server has answered (see publishConfirmed).
func (a *Agent) certainty(pod *v1.Pod) podlife.Certainty {
	if podmeta.IsStatic(pod) {
		return podlife.Confirmed
	}
	w := a.pods.Want(pod.UID)
	if w.Pod != nil && !sameDefinitions(w.Pod, pod) {
		return podlife.Remembered // the worker gets the newer one any moment
	}
	return w.By
}

// sameDefinitions reports whether containers of two versions of a pod are made alike.
func sameDefinitions(a, b *v1.Pod) bool {
	same := func(a, b v1.Container) bool { return podspec.Hash(&a) == podspec.Hash(&b) }
	return slices.EqualFunc(a.Spec.Containers, b.Spec.Containers, same) && slices.EqualFunc(a.Spec.InitContainers, b.Spec.InitContainers, same)
}
