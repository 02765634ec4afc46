package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/nodewright/nodewright/agent/internal/explain"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/record"
)

// Past explains the past of a pod, or of the node, by the files of a record.Recorder in dir. The
// agent may be running or not, and the pod may be gone. The name of a static pod may lack the name
// of the node. If there is nothing about the pod, the error is a local.ErrNotFound.
func Past(dir string, q local.PastQuery) (local.Past, error) {
	entries, pod, err := Recorded(dir, q.Namespace, q.Name)
	if err != nil {
		return local.Past{}, err
	}
	q.Namespace, q.Name = pod.Namespace, pod.Name
	return explain.Past(entries, q, time.Now()), nil
}

// Recorded returns the recorded entries about a pod and the node, and the pod. Without a name, it
// returns only the entries about the node. See [Past] for the names of pods.
func Recorded(dir, namespace, name string) ([]record.Entry, record.Pod, error) {
	f := record.Filter{Node: true}
	var pod record.Pod
	if name != "" {
		pods, node, err := record.Pods(dir)
		if err != nil {
			return nil, pod, fmt.Errorf("read the record: %w", err)
		}
		for _, p := range pods { // the newest of several
			if (p.Name == name || p.Name == name+"-"+strings.ToLower(node)) && (namespace == "" || p.Namespace == namespace) {
				pod = p
			}
		}
		if pod == (record.Pod{}) {
			return nil, pod, fmt.Errorf("pod %q is not in the record in %s: %w", name, dir, local.ErrNotFound)
		}
		f.Namespace, f.Name = pod.Namespace, pod.Name
	}
	var entries []record.Entry
	for e, err := range record.Read(dir, f) {
		if err != nil {
			return nil, pod, fmt.Errorf("read the record: %w", err)
		}
		entries = append(entries, e)
	}
	return entries, pod, nil
}
