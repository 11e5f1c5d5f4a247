/* What routing costs on ZeroMQ without Python, two frames for each message; see rivals.py.

   `rival publish COUNT SUBSCRIBERS`, `rival receive ENDPOINT`, `rival echo` and `rival ping COUNT ENDPOINT ENDPOINT`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
/* What zmq.h would declare; wheels do not bring it. */
typedef struct { unsigned char _[64] __attribute__((aligned(8))); } zmq_msg_t;
void *zmq_ctx_new(void);
int zmq_ctx_term(void *), zmq_close(void *);
int zmq_bind(void *, const char *), zmq_connect(void *, const char *);
void *zmq_socket(void *, int);
int zmq_setsockopt(void *, int, const void *, size_t), zmq_getsockopt(void *, int, void *, size_t *);
int zmq_send(void *, const void *, size_t, int), zmq_recv(void *, void *, size_t, int);
int zmq_msg_init(zmq_msg_t *), zmq_msg_recv(zmq_msg_t *, void *, int), zmq_msg_close(zmq_msg_t *);
void *zmq_msg_data(zmq_msg_t *);
size_t zmq_msg_size(const zmq_msg_t *);
enum { PUB = 1, SUB = 2, XPUB = 9, SNDMORE = 2 };
enum { SUBSCRIBE = 6, SNDHWM = 23, RCVHWM = 24, RCVTIMEO = 27, LAST_ENDPOINT = 32, VERBOSE = 40, NODROP = 69 };
static const char END[] = "md.end.end";
static void *context;

static void *make(int type, int option, const void *value, size_t size) {
    int unlimited = 0;
    void *socket = zmq_socket(context, type);
    zmq_setsockopt(socket, SNDHWM, &unlimited, sizeof unlimited);
    zmq_setsockopt(socket, RCVHWM, &unlimited, sizeof unlimited);
    if (value) zmq_setsockopt(socket, option, value, size);
    return socket;
}

static void bind_and_tell(void *socket) {
    char text[256];
    size_t size = sizeof text;
    zmq_bind(socket, "tcp://127.0.0.1:*");
    zmq_getsockopt(socket, LAST_ENDPOINT, text, &size);
    puts(text);
    fflush(stdout);
}

static void send_two(void *socket, const char *subject, const void *payload, size_t size) {
    zmq_send(socket, subject, strlen(subject), SNDMORE);
    zmq_send(socket, payload, size, 0);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

static void publish(long count, int subscribers) {
    static char subjects[1000][16], payload[100], text[256];
    int one = 1;
    void *socket = make(XPUB, NODROP, &one, sizeof one);
    zmq_setsockopt(socket, VERBOSE, &one, sizeof one);
    for (int number = 0; number < 1000; number++)
        sprintf(subjects[number], "md.%d.%d", number / 25, number % 25);
    memset(payload, 'x', sizeof payload);
    bind_and_tell(socket);
    while (subscribers--) zmq_recv(socket, text, sizeof text, 0);
    for (long number = 0; number < count; number++)
        send_two(socket, subjects[number % 1000], payload, sizeof payload);
    send_two(socket, END, "", 0);
    zmq_close(socket);
}

static void receive(const char *endpoint) {
    double first = 0;
    zmq_msg_t subject, payload;
    void *socket = make(SUB, SUBSCRIBE, "md.", 3);
    zmq_connect(socket, endpoint);
    for (long count = 0;; count++) {
        zmq_msg_init(&subject);
        zmq_msg_init(&payload);
        zmq_msg_recv(&subject, socket, 0);
        zmq_msg_recv(&payload, socket, 0);
        if (!count) first = seconds();
        if (zmq_msg_size(&subject) == strlen(END) && !memcmp(zmq_msg_data(&subject), END, strlen(END))) {
            printf("%ld %.9f\n", count, seconds() - first);
            break;
        }
        zmq_msg_close(&subject);
        zmq_msg_close(&payload);
    }
    zmq_close(socket);
}

static void echo(void) {
    char subject[256], payload[256];
    void *out = make(PUB, 0, NULL, 0), *back = make(SUB, SUBSCRIBE, "ping.", 5);
    bind_and_tell(out);
    bind_and_tell(back);
    for (;;) {
        int length = zmq_recv(back, subject, sizeof subject - 1, 0), size = zmq_recv(back, payload, sizeof payload, 0);
        if (size == 3 && !memcmp(payload, "end", 3)) break;
        subject[length] = 0;
        memcpy(subject, "pong", 4);
        send_two(out, subject, payload, size);
    }
    zmq_close(out);
    zmq_close(back);
}

static void ping(long count, const char *from, const char *to) {
    char text[256], payload[100];
    int soon = 100, never = -1;
    void *back = make(SUB, SUBSCRIBE, "pong.", 5), *out = make(XPUB, 0, NULL, 0);
    memset(payload, 'x', sizeof payload);
    zmq_connect(back, from);
    zmq_connect(out, to);
    zmq_recv(out, text, sizeof text, 0);
    /* The way back may not stand yet: what is sent too early is lost. */
    zmq_setsockopt(back, RCVTIMEO, &soon, sizeof soon);
    do send_two(out, "ping.a", "warm", 4); while (zmq_recv(back, text, sizeof text, 0) < 0);
    do zmq_recv(back, text, sizeof text, 0); while (zmq_recv(back, text, sizeof text, 0) >= 0);
    zmq_setsockopt(back, RCVTIMEO, &never, sizeof never);
    while (count--) {
        double began = seconds();
        send_two(out, "ping.a", payload, sizeof payload);
        zmq_recv(back, text, sizeof text, 0);
        zmq_recv(back, text, sizeof text, 0);
        printf("%.9f\n", seconds() - began);
    }
    send_two(out, "ping.a", "end", 3);
    zmq_close(out);
    zmq_close(back);
}

int main(int argc, char **argv) {
    alarm(120); /* never left behind */
    context = zmq_ctx_new();
    if (!strcmp(argv[1], "publish")) publish(atol(argv[2]), atoi(argv[3]));
    else if (!strcmp(argv[1], "receive")) receive(argv[2]);
    else if (!strcmp(argv[1], "echo")) echo();
    else ping(atol(argv[2]), argv[3], argv[4]);
    return zmq_ctx_term(context);
}
