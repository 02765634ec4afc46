package kubeletconfig

var FieldsOfFlags = fieldsOfFlags
