/*
 * published.c - see published.h. Variants:
 *
 *   apam/delays        the largest delay; by epoch. AllCNN on CIFAR-10, alpha 1e-4, batches of 100
 *   apam/speed         dataset and method; hours of one epoch by workers. Batches of 80 (CINIC-10) and 100 (ImageNet32).
 *                      The published time of one synchronous worker is that of one asynchronous worker
 *   apam/accuracy      dataset and workers; by epoch. Training accuracy on augmented images
 *   apam/mnist-lenet5  by workers, after 200 epochs; seconds of the whole run
 *   apam/logit         rcv1, by threads, after 100 epochs of batches of 64; seconds of the whole run
 *
 * Curves of figures were read from their vector drawings.
 */
#include "cli/published.h"

#include <stddef.h>
#include <string.h>

static const nw_published_figure delay_test_top1 = {
    "apam/delays", "test_top1", "APAM, figure 9", 10, {1, 5, 10, 20, 50, 100, 150, 200, 300, 400}};
static const nw_published_figure delay_train_top1 = {
    "apam/delays", "train_top1", "APAM, figure 9", 4, {50, 100, 200, 400}};
static const nw_published_figure hours = {"apam/speed", "hours", "APAM, figure 10", 4, {1, 5, 10, 20}};
static const nw_published_figure cinic10_test_top1 = {
    "apam/accuracy", "test_top1", "APAM, figure 11", 7, {1, 10, 20, 50, 100, 150, 200}};
static const nw_published_figure cinic10_train_top1 = {
    "apam/accuracy", "train_top1", "APAM, figure 11", 4, {10, 50, 100, 200}};
static const nw_published_figure imagenet32_test_top1 = {
    "apam/accuracy", "test_top1", "APAM, figure 12", 6, {1, 2, 10, 20, 30, 40}};
static const nw_published_figure imagenet32_test_top5 = {
    "apam/accuracy", "test_top5", "APAM, figure 12", 3, {10, 20, 40}};
static const nw_published_figure imagenet32_train_top1 = {"apam/accuracy", "train_top1", "APAM, figure 12", 1, {40}};
static const nw_published_figure imagenet32_train_top5 = {"apam/accuracy", "train_top5", "APAM, figure 12", 1, {40}};
static const nw_published_figure lenet5_test_top1 = {
    "apam/mnist-lenet5", "test_top1", "APAM, README of the C++ program", 5, {1, 2, 5, 10, 20}};
static const nw_published_figure lenet5_train_top1 = {
    "apam/mnist-lenet5", "train_top1", "APAM, README of the C++ program", 5, {1, 2, 5, 10, 20}};
static const nw_published_figure lenet5_seconds = {
    "apam/mnist-lenet5", "seconds", "APAM, README of the C++ program", 5, {1, 2, 5, 10, 20}};
static const nw_published_figure logit_train_loss = {
    "apam/logit", "train_loss", "APAM, README of the OpenMP program", 6, {1, 2, 4, 8, 16, 32}};
static const nw_published_figure logit_test_top1 = {
    "apam/logit", "test_top1", "APAM, README of the OpenMP program", 6, {1, 2, 4, 8, 16, 32}};
static const nw_published_figure logit_seconds = {
    "apam/logit", "seconds", "APAM, README of the OpenMP program", 6, {1, 2, 4, 8, 16, 32}};

static const nw_published rows[] = {
    {&delay_test_top1, "0", {59.27, 76.26, 81.41, 85.67, 87.57, 88.16, 88.29, 88.29, 88.86, 89.06}},
    {&delay_test_top1, "5", {52.66, 75.60, 81.86, 85.59, 88.60, 88.91, 89.11, 88.79, 89.23, 89.27}},
    {&delay_test_top1, "10", {40.17, 67.57, 79.28, 85.53, 88.51, 89.52, 89.13, 89.95, 89.27, 89.60}},
    {&delay_test_top1, "20", {41.77, 59.82, 70.93, 81.50, 87.79, 88.60, 89.76, 89.66, 88.84, 89.20}},
    {&delay_test_top1, "50", {35.35, 41.22, 49.31, 70.32, 84.82, 88.74, 89.19, 89.57, 89.33, 89.34}},
    {&delay_test_top1, "100", {32.79, 37.78, 47.34, 56.20, 77.21, 86.47, 88.00, 87.69, 89.17, 88.51}},
    {&delay_test_top1, "200", {26.81, 34.08, 38.30, 45.84, 65.83, 80.27, 85.83, 87.05, 86.17, 87.42}},
    {&delay_test_top1, "400", {27.77, 30.30, 36.25, 42.54, 57.94, 74.47, 80.04, 84.59, 87.15, 87.99}},
    {&delay_train_top1, "0", {98.05, 99.73, 99.93, 99.99}},
    {&delay_train_top1, "5", {97.93, 99.76, 99.96, 99.99}},
    {&delay_train_top1, "10", {96.88, 99.51, 99.95, 99.98}},
    {&delay_train_top1, "20", {95.33, 98.95, 99.97, 99.99}},
    {&delay_train_top1, "50", {89.96, 97.34, 99.90, 99.97}},
    {&delay_train_top1, "100", {80.94, 93.63, 98.67, 99.97}},
    {&delay_train_top1, "200", {68.00, 84.58, 97.80, 99.97}},
    {&delay_train_top1, "400", {58.16, 75.65, 91.79, 99.84}},

    {&hours, "cinic10 async", {1.7937, 0.3935, 0.2451, 0.1797}},
    {&hours, "cinic10 sync", {1.7937, 0.6886, 0.7749, 1.0776}},
    {&hours, "imagenet32 async", {24.482, 5.31, 3.271, 2.197}},
    {&hours, "imagenet32 sync", {24.482, 6.57, 5.686, 6.202}},

    {&cinic10_test_top1, "cinic10 1", {61.65, 81.59, 83.72, 85.28, 85.98, 86.21, 86.22}},
    {&cinic10_test_top1, "cinic10 2", {61.88, 80.90, 83.37, 85.42, 86.08, 86.28, 86.39}},
    {&cinic10_test_top1, "cinic10 5", {55.93, 81.13, 83.58, 85.45, 85.99, 86.16, 86.42}},
    {&cinic10_test_top1, "cinic10 10", {46.13, 78.20, 82.60, 85.14, 85.54, 86.02, 86.24}},
    {&cinic10_train_top1, "cinic10 1", {84.04, 96.75, 99.12, 99.70}},
    {&cinic10_train_top1, "cinic10 2", {83.57, 96.53, 99.15, 99.68}},
    {&cinic10_train_top1, "cinic10 5", {83.16, 96.57, 98.95, 99.73}},
    {&cinic10_train_top1, "cinic10 10", {79.60, 95.38, 98.73, 99.69}},
    {&imagenet32_test_top1, "imagenet32 1", {22.21, 32.84, 48.48, 50.79, 50.51, 50.58}},
    {&imagenet32_test_top1, "imagenet32 2", {20.88, 32.02, 48.08, 50.36, 50.39, 50.17}},
    {&imagenet32_test_top1, "imagenet32 5", {17.86, 30.20, 47.57, 49.52, 49.76, 49.69}},
    {&imagenet32_test_top1, "imagenet32 10", {10.22, 24.38, 45.51, 48.54, 48.97, 48.87}},
    {&imagenet32_test_top5, "imagenet32 1", {73.05, 75.08, 74.60}},
    {&imagenet32_test_top5, "imagenet32 2", {72.70, 74.46, 74.40}},
    {&imagenet32_test_top5, "imagenet32 5", {72.32, 73.92, 73.91}},
    {&imagenet32_test_top5, "imagenet32 10", {70.47, 73.03, 73.17}},
    {&imagenet32_train_top1, "imagenet32 1", {72.75}},
    {&imagenet32_train_top1, "imagenet32 2", {72.00}},
    {&imagenet32_train_top1, "imagenet32 5", {71.36}},
    {&imagenet32_train_top1, "imagenet32 10", {69.36}},
    {&imagenet32_train_top5, "imagenet32 1", {91.54}},
    {&imagenet32_train_top5, "imagenet32 2", {91.09}},
    {&imagenet32_train_top5, "imagenet32 5", {90.79}},
    {&imagenet32_train_top5, "imagenet32 10", {89.47}},

    {&lenet5_test_top1, "async", {98.95, 99.05, 99.01, 99.02, 99.08}},
    {&lenet5_train_top1, "async", {100.00, 100.00, 100.00, 100.00, 100.00}},
    {&lenet5_seconds, "async", {1661.89, 821.95, 369.88, 233.73, 145.51}},

    {&logit_train_loss, "async", {0.00271, 0.00267, 0.00239, 0.00268, 0.00285, 0.00271}},
    {&logit_test_top1, "async", {99.90, 99.90, 99.92, 99.90, 99.91, 99.90}},
    {&logit_seconds, "async", {320.99, 168.15, 88.31, 48.27, 27.6, 19.71}},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

const nw_published *nw_published_find(const char *experiment, const char *variant, const char *quantity)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].figure->experiment, experiment) == 0 && strcmp(rows[i].variant, variant) == 0 &&
            strcmp(rows[i].figure->quantity, quantity) == 0)
            return &rows[i];
    return NULL;
}
