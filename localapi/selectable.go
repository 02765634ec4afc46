package localapi

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
)

// fieldsOf returns the fields of an object that field selectors support.
func fieldsOf(o object) fields.Set {
	set := fields.Set{"metadata.name": o.GetName()}
	if _, cluster := o.(*v1.Node); !cluster {
		set["metadata.namespace"] = o.GetNamespace()
	}
	switch o := o.(type) {
	case *v1.Pod:
		set["spec.nodeName"], set["status.phase"] = o.Spec.NodeName, string(o.Status.Phase)
		set["spec.restartPolicy"], set["spec.schedulerName"] = string(o.Spec.RestartPolicy), o.Spec.SchedulerName
		set["spec.serviceAccountName"], set["spec.hostNetwork"] = o.Spec.ServiceAccountName, strconv.FormatBool(o.Spec.HostNetwork)
		set["status.podIP"], set["status.nominatedNodeName"] = o.Status.PodIP, o.Status.NominatedNodeName
	case *v1.Secret:
		set["type"] = string(o.Type)
	case *v1.Namespace:
		set["status.phase"] = string(o.Status.Phase)
	case *v1.Node:
		set["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
	case *v1.Event:
		about := o.InvolvedObject
		set["involvedObject.kind"], set["involvedObject.namespace"], set["involvedObject.name"] = about.Kind, about.Namespace, about.Name
		set["involvedObject.uid"], set["involvedObject.apiVersion"] = string(about.UID), about.APIVersion
		set["involvedObject.resourceVersion"], set["involvedObject.fieldPath"] = about.ResourceVersion, about.FieldPath
		set["reason"], set["type"], set["reportingComponent"] = o.Reason, o.Type, o.ReportingController
		set["source"] = o.Source.Component
		if o.Source.Component == "" {
			set["source"] = o.ReportingController
		}
	}
	return set
}

// selectable converts a field selector to the stored version. It rejects fields that the kind
// does not support.
func (k *kind) selectable(s fields.Selector) (fields.Selector, error) {
	set := fieldsOf(k.kept().empty)
	return s.Transform(func(name, value string) (string, string, error) {
		top, rest, _ := strings.Cut(name, ".")
		stored := k.storedName(top)
		if rest != "" {
			stored += "." + rest
		}
		if _, ok := set[stored]; !ok {
			return "", "", apierrors.NewBadRequest(fmt.Sprintf("fieldSelector: %.100q is not a field by which %s can be selected", name, k.resource))
		}
		return stored, value, nil
	})
}

// selects reports whether a query selects an object.
func (q *query) selects(k *kind, o object) bool {
	return (!k.namespaced || q.namespace == "" || o.GetNamespace() == q.namespace) &&
		(q.name == "" || o.GetName() == q.name) && (q.labels.Empty() || q.labels.Matches(labelSet(o.GetLabels()))) &&
		(q.fields.Empty() || q.fields.Matches(fieldsOf(o)))
}

// labelSet is a labels.Set that needs no copy of the map.
type labelSet map[string]string

func (s labelSet) Has(label string) bool              { _, ok := s[label]; return ok }
func (s labelSet) Get(label string) string            { return s[label] }
func (s labelSet) Lookup(label string) (string, bool) { v, ok := s[label]; return v, ok }
