package localapi

import (
	"encoding/json"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// tableOf returns a table of objects. include says which part of the object each row contains:
// None, Metadata or Object.
func tableOf(k *kind, objects []object, meta metav1.ListMeta, include metav1.IncludeObjectPolicy, headers bool, now time.Time) (*metav1.Table, error) {
	t := &metav1.Table{
		TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "Table"}, ListMeta: meta, Rows: []metav1.TableRow{},
	}
	for _, c := range k.columns {
		if !headers {
			break
		}
		d := metav1.TableColumnDefinition{Name: c.Name, Type: c.Type}
		if c.Name == "Name" {
			d.Format = "name"
		}
		if c.Wide {
			d.Priority = 1
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, d)
	}
	for _, o := range objects {
		row, err := rowOf(k, o, include, now)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// encodeTable writes the JSON of tableOf, one row at a time.
func encodeTable(w io.Writer, k *kind, objects []object, meta metav1.ListMeta, include metav1.IncludeObjectPolicy, now time.Time) error {
	empty, err := tableOf(k, nil, meta, include, true, now)
	if err != nil {
		return err
	}
	text, err := json.Marshal(empty)
	if err != nil {
		return err
	}
	const end = "]}"
	if _, err := w.Write(text[:len(text)-len(end)]); err != nil { // the rows are the last field
		return err
	}
	for i, o := range objects {
		row, err := rowOf(k, o, include, now)
		if err != nil {
			return err
		}
		text, err := json.Marshal(row)
		if err != nil {
			return err
		}
		if i > 0 {
			text = append([]byte(","), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, end+"\n")
	return err
}

func rowOf(k *kind, o object, include metav1.IncludeObjectPolicy, now time.Time) (row metav1.TableRow, err error) {
	for _, c := range k.columns {
		row.Cells = append(row.Cells, c.Cell(o, now))
	}
	return row, rowObject(&row, k.shown(o), include)
}

func rowObject(row *metav1.TableRow, o object, include metav1.IncludeObjectPolicy) (err error) {
	var of runtime.Object = o
	switch include {
	case metav1.IncludeNone:
		return nil
	case metav1.IncludeObject:
	default:
		of = metadataOf(o)
	}
	row.Object.Raw, err = json.Marshal(of)
	return err
}

// metadataOf returns only the metadata of an object.
func metadataOf(o object) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadata"}}
	out.Name, out.Namespace, out.UID, out.ResourceVersion = o.GetName(), o.GetNamespace(), o.GetUID(), o.GetResourceVersion()
	out.GenerateName, out.Generation, out.CreationTimestamp = o.GetGenerateName(), o.GetGeneration(), o.GetCreationTimestamp()
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds = o.GetDeletionTimestamp(), o.GetDeletionGracePeriodSeconds()
	out.Labels, out.Annotations, out.Finalizers = o.GetLabels(), o.GetAnnotations(), o.GetFinalizers()
	out.OwnerReferences, out.ManagedFields = o.GetOwnerReferences(), o.GetManagedFields()
	return out
}
