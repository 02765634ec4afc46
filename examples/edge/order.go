package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// wantsLicence is the pod annotation with the name of the required licence.
const wantsLicence = "edge.example/licence"

// order is one pod in the list of the server.
type order struct {
	Name    string   `json:"name"`
	Image   string   `json:"image"`
	Args    []string `json:"args,omitempty"`
	Licence string   `json:"licence,omitempty"`
}

// readOrders parses a list of orders. One invalid order makes the whole list invalid, since
// with a partial list the agent would stop the other pods.
func readOrders(body []byte) ([]order, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	var list []order
	if err := dec.Decode(&list); err != nil {
		return nil, fmt.Errorf("not a list of orders: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a list of orders: data after the list")
	}
	if list == nil {
		return nil, errors.New("not a list of orders: null")
	}
	names := map[string]bool{}
	for i, o := range list {
		if err := o.check(names); err != nil {
			return nil, fmt.Errorf("order %d: %w", i+1, err)
		}
		names[o.Name] = true
	}
	return list, nil
}

func (o order) check(taken map[string]bool) error {
	if msgs := validation.IsDNS1123Label(o.Name); len(msgs) > 0 {
		return fmt.Errorf("name %q: %s", o.Name, strings.Join(msgs, "; "))
	}
	if taken[o.Name] {
		return fmt.Errorf("name %q: duplicate", o.Name)
	}
	if o.Image == "" || o.Image != strings.TrimSpace(o.Image) {
		return fmt.Errorf("image %q: the name of an image is required", o.Image)
	}
	return nil
}

// uid returns the UID of the order's pod, a hash of the order. So a changed order is a new
// pod, and an unchanged order is the same pod after a restart of the agent.
func (o order) uid() types.UID {
	b, _ := json.Marshal(o) // does not fail for strings
	sum := sha256.Sum256(b)
	return types.UID(hex.EncodeToString(sum[:16]))
}

// graceSeconds is the termination grace period of the pods.
const graceSeconds = 10

// pod returns the pod of the order, with the defaults that an API server would set.
func (o order) pod() *v1.Pod {
	grace, links := int64(graceSeconds), false
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: o.Name, UID: o.uid()},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault,
			TerminationGracePeriodSeconds: &grace, EnableServiceLinks: &links,
			SecurityContext: &v1.PodSecurityContext{},
			Containers: []v1.Container{{
				Name: "main", Image: o.Image, Args: o.Args, ImagePullPolicy: v1.PullIfNotPresent,
				TerminationMessagePath: v1.TerminationMessagePathDefault, TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
	}
	if o.Licence != "" {
		pod.Annotations = map[string]string{wantsLicence: o.Licence}
	}
	return pod
}
