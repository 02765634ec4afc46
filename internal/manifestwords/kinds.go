package manifestwords

import "strings"

const (
	podItself   = "apply the pod itself"
	podsThere   = podItself + ": spec.template with kind Pod and a name"
	eachCopy    = podsThere + ", once for each replica"
	fromOutside = podItself + ", with hostPort or hostNetwork"
)

// instead maps kinds that need a cluster's controllers to advice for a single node.
var instead = map[string]string{
	"DaemonSet":             podsThere + "; on one node a DaemonSet creates only one pod",
	"Deployment":            eachCopy + "; restartPolicy Always keeps it running",
	"ReplicaSet":            eachCopy,
	"StatefulSet":           podsThere + ", and PersistentVolumes for its claims",
	"CronJob":               podItself + " from a systemd timer, with restartPolicy OnFailure or Never",
	"Job":                   podsThere + ", and restartPolicy OnFailure or Never",
	"Endpoints":             fromOutside + ": there are no Services on one node",
	"ReplicationController": eachCopy,
	"Service":               fromOutside + ": nothing balances load on one node",
	"Ingress":               fromOutside + ", or a proxy as a pod",
}

// Instead returns advice: what to use on a single node in place of a kind that needs a cluster's
// controllers. It returns "" for other kinds.
func Instead(kind string) string {
	if words := instead[kind]; words != "" {
		return "a single node has no " + kind + " controller; " + words
	}
	return ""
}

// Kind returns an error text for an unsupported kind. The argument known has the supported kinds,
// at least two.
func Kind(kind string, known []string) string {
	if words := Instead(kind); words != "" {
		return words
	}
	if near := Nearest(kind, append([]string(nil), known...)); near != "" {
		return "did you mean " + near + "?"
	}
	return "want " + strings.Join(known[:len(known)-1], ", ") + " or " + known[len(known)-1]
}

// Foreign returns an error text for a document without apiVersion and kind. From the document's
// keys it recognizes a docker compose file. It returns "" if the document resembles a Kubernetes
// object.
func Foreign(keys []string) string {
	has := map[string]bool{}
	for _, k := range keys {
		has[k] = true
	}
	switch {
	case has["services"]:
		return "is not a Kubernetes manifest (no apiVersion, no kind); it looks like a docker compose file: want a Pod for each service"
	case has["spec"] || has["metadata"] || has["containers"]:
		return ""
	default:
		return "is not a Kubernetes manifest (no apiVersion, no kind)"
	}
}
