package shutdown

import (
	"context"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podlife"
)

// turn terminates the pods of a group, and pods of earlier groups that have started meanwhile. It
// waits for all of them. If there are none, it returns at once.
func (m *Manager) turn(ctx, running context.Context, group int, begun map[types.UID]bool) {
	var pods []*v1.Pod
	for _, pod := range m.cfg.Pods.Active() {
		if !begun[pod.UID] && groupOf(m.groups, pod) <= group {
			begun[pod.UID] = true
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		return
	}
	within := m.groups[group].Time
	log := m.cfg.Log.With(zap.Int32("priority", m.groups[group].Priority), zap.Duration("within", within))
	log.Info("terminating group of pods", zap.Int("pods", len(pods)))

	waiting, cancel := context.WithTimeout(running, within)
	defer cancel()
	ended := make(chan *v1.Pod, len(pods))
	for _, pod := range pods {
		m.wg.Go(func() {
			m.kill(ctx, pod, within)
			ended <- pod
		})
	}
	left := make(map[types.UID]string, len(pods))
	for _, pod := range pods {
		left[pod.UID] = pod.Namespace + "/" + pod.Name
	}
	for len(left) > 0 {
		select {
		case pod := <-ended:
			delete(left, pod.UID)
		case <-waiting.Done():
			log.Warn("gave up waiting for pods at shutdown: deadline passed", zap.Strings("pods", names(left)))
			return
		}
	}
	if m.cfg.Volumes == nil {
		return
	}
	unmounted := make(chan error, 1)
	m.wg.Go(func() { unmounted <- m.cfg.Volumes.WaitUnmounted(waiting, pods) })
	select {
	case err := <-unmounted:
		if err != nil {
			log.Warn("failed to unmount volumes at shutdown", zap.Strings("pods", podNames(pods)), zap.Error(err))
		}
	case <-waiting.Done():
		log.Warn("gave up unmounting volumes at shutdown: deadline passed", zap.Strings("pods", podNames(pods)))
	}
}

// kill ends one pod.
func (m *Manager) kill(ctx context.Context, pod *v1.Pod, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within+killSlack)
	defer cancel()
	seconds := grace(pod, within)
	err := m.cfg.Killer.Kill(ctx, pod, podlife.Cause{Kind: podlife.Shutdown, At: time.Now(), Grace: &seconds})
	if err != nil {
		m.cfg.Log.Warn("failed to terminate pod", zap.String("pod", pod.Namespace+"/"+pod.Name),
			zap.Int64("grace", seconds), zap.Error(err))
	}
}

func names(m map[types.UID]string) []string {
	out := make([]string, 0, len(m))
	for _, name := range m {
		out = append(out, name)
	}
	return out
}

func podNames(pods []*v1.Pod) []string {
	out := make([]string, len(pods))
	for i, pod := range pods {
		out[i] = pod.Namespace + "/" + pod.Name
	}
	return out
}
