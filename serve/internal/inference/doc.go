// Package inference has the messages of the Open Inference Protocol's gRPC service, made from inference.proto by
// generate.sh. It knows their bytes and nothing of what is done with them.
//
//	request := new(inference.InferRequest)
//	err := proto.Unmarshal(bytes, request)
package inference
