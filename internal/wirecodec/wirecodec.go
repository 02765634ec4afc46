// Package wirecodec decodes messages of untrusted gRPC servers. It rejects a message with
// too many fields without decoding it.
package wirecodec

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecount"
)

// Codec is an encoding.CodecV2 for protobuf. It is safe for concurrent use.
type Codec struct {
	// Fields is the maximum number of fields of a message, including those of
	// nested messages.
	Fields int
	// Shapes has the shape of each message type with nested messages, by the type's name.
	// Entries of maps are nested messages with a key and a value.
	Shapes map[protoreflect.Name]wirecount.Shape
}

// Marshal encodes a message.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("message is a %T; want a protobuf message", v)
	}
	b, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal decodes a message. It returns wirecount.ErrTooMany if the message has more than
// c.Fields fields.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("message is a %T; want a protobuf message", v)
	}
	b := data.Materialize()
	if err := wirecount.Check(b, c.Shapes[m.ProtoReflect().Descriptor().Name()], c.Fields); err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}

// Name returns "": requests have gRPC's default content type, without a subtype.
func (Codec) Name() string { return "" }
